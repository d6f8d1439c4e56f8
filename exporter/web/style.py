"""The one style sheet of the status page, as it stands in it."""

STYLE = """
:root {
  color-scheme: light dark;
  --page: #fff; --raised: #f5f7f9; --line: #d5dbe1; --edge: #7d8791;
  --ink: #1f2328; --soft: #59636e; --link: #0550ae;
  --down: #b42318; --pending: #7a4f00; --up: #19692c; --alarm: #fdf1f0;
}
@media (prefers-color-scheme: dark) {
  :root {
    --page: #0e1217; --raised: #171c23; --line: #2c333c; --edge: #6f7883;
    --ink: #e4e9ef; --soft: #98a2ad; --link: #7cb7ff;
    --down: #ff9086; --pending: #e2b341; --up: #5ac96f; --alarm: #2a1618;
  }
}
* { box-sizing: border-box }
html { scroll-padding-top: 3.5rem; -webkit-text-size-adjust: 100% }
body {
  margin: 0 auto; padding: 0 1rem 2rem; max-width: 110rem;
  background: var(--page); color: var(--ink);
  font: 0.8125rem/1.4 system-ui, -apple-system, "Segoe UI", Roboto, "DejaVu Sans", sans-serif;
  font-variant-numeric: tabular-nums;
}
a { color: var(--link); text-underline-offset: 0.15em }
:focus-visible { outline: 2px solid var(--link); outline-offset: 2px; border-radius: 2px }
h1, h2, p { margin: 0 }
h1 { font-size: 1.0625rem }
h2 { font-size: 0.9375rem; margin: 1.25rem 0 0.5rem }
small { color: var(--soft); font-size: 0.75rem; font-weight: normal }
td small, th small { display: block; white-space: normal }
header, nav, form, .counts { display: flex; flex-wrap: wrap; align-items: center; gap: 0.375rem 1rem }
header { padding: 0.75rem 0; border-bottom: 1px solid var(--line) }
header p { color: var(--soft) }
header nav { margin-left: auto }
footer { margin-top: 1rem; color: var(--soft) }
form { gap: 0.5rem; margin-bottom: 0.5rem }
label { color: var(--soft) }
input, select, button, .counts a {
  font: inherit; color: var(--ink); background: var(--page);
  border: 1px solid var(--edge); border-radius: 4px; padding: 0.25rem 0.5rem; min-height: 1.875rem;
}
input { width: 15rem; max-width: 100% }
select { max-width: 14rem }
button { background: var(--raised); cursor: pointer; padding: 0.25rem 0.875rem }
.counts { gap: 0.5rem; margin: 0.75rem 0 0; padding: 0; list-style: none }
.counts a { display: flex; align-items: center; text-decoration: none; border-color: var(--line) }
.counts a:hover { border-color: var(--edge) }
.counts a[aria-current] { border-color: var(--ink); box-shadow: inset 0 0 0 1px var(--ink) }
.down, .pending, .up { font-weight: 600; white-space: nowrap }
.down { color: var(--down) }
.pending { color: var(--pending) }
.up { color: var(--up) }
.none { color: var(--soft) }
.note { color: var(--soft); margin: 0.5rem 0 }
table { border-collapse: collapse; width: 100% }
th, td { padding: 0.3125rem 0.4375rem; text-align: left; vertical-align: top; font-weight: normal }
thead th {
  position: sticky; top: 0; z-index: 1; vertical-align: bottom; white-space: nowrap;
  background: var(--raised); box-shadow: inset 0 -1px var(--edge); color: var(--soft); font-weight: 600;
}
thead a { color: inherit; text-decoration: none }
thead a:hover { text-decoration: underline }
thead [aria-sort] a { color: var(--ink) }
.cards tbody tr, .still tbody { border-bottom: 1px solid var(--line) }
.cards tbody tr:hover, .still tbody:hover { background: var(--raised) }
.broken { box-shadow: inset 3px 0 var(--down); background: var(--alarm) }
.id { font-family: ui-monospace, SFMono-Regular, Menlo, "DejaVu Sans Mono", monospace; font-size: 0.75rem }
.id small { font-family: system-ui, "DejaVu Sans", sans-serif }
.id, .name, .text { overflow-wrap: anywhere; min-width: 5.5rem }
.model { min-width: 8rem }
.name { font-weight: 600 }
.number { text-align: right; white-space: nowrap }
.plain { white-space: nowrap }
.error, .circuit { overflow-wrap: anywhere; min-width: 12rem }
.counted a { display: inline-block; margin-right: 0.75rem }
.error b { color: var(--down) }
meter { width: 3rem; height: 0.75rem; vertical-align: -0.0625rem }

@media (max-width: 78rem) {
  table, thead, tbody, tr, th, td { display: block }
  .still thead { position: absolute; width: 1px; height: 1px; overflow: hidden; clip-path: inset(50%) }
  .cards thead { margin-bottom: 0.5rem }
  .cards thead::before { content: "Sort by"; color: var(--soft) }
  thead th {
    display: inline-block; position: static; padding: 0.25rem 0.75rem 0.25rem 0;
    background: none; box-shadow: none;
  }
  thead a { text-decoration: underline; padding: 0.25rem 0 }
  .cards tbody, .still {
    display: grid; gap: 0.625rem; align-items: start;
    grid-template-columns: repeat(auto-fill, minmax(min(20rem, 100%), 1fr));
  }
  .cards tbody tr, .still tbody {
    border: 1px solid var(--line); border-radius: 6px; padding: 0.375rem 0.25rem;
  }
  .still tr + tr { border-top: 1px dashed var(--line); margin-top: 0.375rem; padding-top: 0.375rem }
  tbody tr { display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)) }
  :is(.cards, .still) tbody :is(th, td) {
    min-width: 0; padding: 0.1875rem 0.5rem;
    text-align: left; white-space: normal; overflow-wrap: anywhere;
  }
  tbody [data-label]::before {
    content: attr(data-label); display: block;
    color: var(--soft); font: 0.75rem/1.4 system-ui, "DejaVu Sans", sans-serif;
  }
  tbody [data-label="State"]::before { display: none }
  .cards .name { grid-column: 2 / -1 }
  .still .name, .error, .broken .circuit { grid-column: 1 / -1 }
  .error:has(.none) { display: none }
}
@media (max-width: 40rem) {
  body { padding: 0 0.75rem 1.5rem; font-size: 0.875rem }
  header nav { margin-left: 0 }
  form { display: grid; grid-template-columns: repeat(3, minmax(0, 1fr)) }
  form label:first-of-type { grid-column: 1 / -1 }
  :is(form, label) :is(input, select) { width: 100%; max-width: none }
  input, select, button, .counts a { min-height: 2.25rem }
  .counts { gap: 0.375rem }
  .counts a { font-size: 0.8125rem; padding: 0.25rem 0.4375rem }
}
"""
