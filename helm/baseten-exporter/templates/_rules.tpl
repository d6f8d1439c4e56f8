{{- /* The groups of a file in files/rules, as {groups: [...]}; none when there is no such file. */ -}}
{{- define "baseten-exporter.ruleFile" -}}
{{- $ := index . 0 -}}
{{- $groups := dict "groups" list -}}
{{- with $.Files.Get (printf "files/rules/%s.yaml" (index . 1)) -}}
{{- $groups = fromYaml . -}}
{{- end -}}
{{- toYaml $groups -}}
{{- end -}}

{{- /* The thresholds: those of the file, and in place of their values those of rules.thresholds. */ -}}
{{- define "baseten-exporter.thresholds" -}}
{{- $ := . -}}
{{- $values := .Values.rules.thresholds -}}
{{- $groups := list -}}
{{- $known := list -}}
{{- range (include "baseten-exporter.ruleFile" (list . "thresholds") | fromYaml).groups -}}
{{- $rules := list -}}
{{- range .rules -}}
{{- $name := trimPrefix "baseten:threshold:" .record -}}
{{- $known = append $known $name -}}
{{- $own := dict -}}
{{- if hasKey $values $name -}}
{{- $own = dict "expr" (printf "vector(%v)" (index $values $name)) -}}
{{- end -}}
{{- $rules = append $rules (merge $own .) -}}
{{- end -}}
{{- $groups = append $groups (merge (dict "rules" $rules) .) -}}
{{- end -}}
{{- range $name, $_ := $values -}}
{{- if not (has $name $known) -}}
{{- fail (printf "rules.thresholds.%s: there is no such threshold. There are: %s." $name (join ", " (sortAlpha $known))) -}}
{{- end -}}
{{- end -}}
{{- with include "baseten-exporter.thresholdsByDeployment" $ | fromYaml -}}
{{- $groups = append $groups . -}}
{{- end -}}
{{- toYaml (dict "groups" $groups) -}}
{{- end -}}

{{- /* A group of what rules.thresholdsByDeployment says; alerts name the thresholds that can be so. */ -}}
{{- define "baseten-exporter.thresholdsByDeployment" -}}
{{- $prefix := "baseten:threshold_by_deployment:" -}}
{{- $alerts := .Files.Get "files/rules/alerts.yaml" -}}
{{- $known := regexFindAll (printf "%s[a-z0-9_]+" $prefix) $alerts -1 | uniq -}}
{{- $rules := list -}}
{{- range $name, $deployments := .Values.rules.thresholdsByDeployment -}}
{{- $record := printf "%s%s" $prefix $name -}}
{{- if not (has $record $known) -}}
{{- $names := join ", " (sortAlpha $known) | replace $prefix "" -}}
{{- fail (printf "rules.thresholdsByDeployment.%s: no alert has such a threshold for single deployments. There are: %s." $name $names) -}}
{{- end -}}
{{- range $id, $value := $deployments -}}
{{- $labels := dict "deployment_id" $id -}}
{{- $rules = append $rules (dict "record" $record "expr" (printf "vector(%v)" $value) "labels" $labels) -}}
{{- end -}}
{{- end -}}
{{- if $rules -}}
{{- toYaml (dict "name" "baseten-thresholds-by-deployment" "rules" $rules) -}}
{{- end -}}
{{- end -}}

{{- /* The alerts, without those of rules.disabled. */ -}}
{{- define "baseten-exporter.alerts" -}}
{{- $ := . -}}
{{- $groups := list -}}
{{- $known := list -}}
{{- range (include "baseten-exporter.ruleFile" (list . "alerts") | fromYaml).groups -}}
{{- $rules := list -}}
{{- range .rules -}}
{{- $known = append $known .alert -}}
{{- if not (has .alert $.Values.rules.disabled) -}}
{{- $rules = append $rules (include "baseten-exporter.alert" (list $ .) | fromYaml) -}}
{{- end -}}
{{- end -}}
{{- if $rules -}}
{{- $groups = append $groups (merge (dict "rules" $rules) .) -}}
{{- end -}}
{{- end -}}
{{- range .Values.rules.disabled -}}
{{- if not (has . $known) -}}
{{- fail (printf "rules.disabled: there is no alert %s. There are: %s." . (join ", " (sortAlpha $known))) -}}
{{- end -}}
{{- end -}}
{{- toYaml (dict "groups" $groups) -}}
{{- end -}}

{{- /* One alert, with rules.alertLabels and rules.runbookUrl. */ -}}
{{- define "baseten-exporter.alert" -}}
{{- $ := index . 0 -}}
{{- $alert := index . 1 -}}
{{- with $.Values.rules.alertLabels -}}
{{- $alert = merge (dict "labels" .) $alert -}}
{{- end -}}
{{- with $.Values.rules.runbookUrl -}}
{{- if dig "annotations" "runbook_url" "" $alert -}}
{{- $page := printf "%s/%s" (trimSuffix "/" .) (base $alert.annotations.runbook_url) -}}
{{- $alert = merge (dict "annotations" (dict "runbook_url" $page)) $alert -}}
{{- end -}}
{{- end -}}
{{- toYaml $alert -}}
{{- end -}}
