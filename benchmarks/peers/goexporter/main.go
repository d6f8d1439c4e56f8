// Serves the gauges of a page with client_golang, as a custom collector of constant metrics.
// It announces itself on the first line of its output, in JSON: the port, and the memory it had
// before the series came.
package main

import (
	"bufio"
	"fmt"
	"log"
	"net"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/promhttp"
)

const prefix = "baseten_"

type series struct {
	desc   *prometheus.Desc
	value  float64
	labels []string
}

type collector []series

// Describe says nothing: label names differ within a family, which only an unchecked collector may do.
func (c collector) Describe(chan<- *prometheus.Desc) {}

func (c collector) Collect(metrics chan<- prometheus.Metric) {
	for _, s := range c {
		metrics <- prometheus.MustNewConstMetric(s.desc, prometheus.GaugeValue, s.value, s.labels...)
	}
}

func main() {
	empty := resident()
	prometheus.MustRegister(read(os.Args[1]))
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		log.Fatal(err)
	}
	http.Handle("/metrics", promhttp.Handler())
	fmt.Printf("{\"port\": %d, \"empty\": %d}\n", listener.Addr().(*net.TCPAddr).Port, empty)
	log.Fatal(http.Serve(listener, nil))
}

func read(path string) collector {
	file, err := os.Open(path)
	if err != nil {
		log.Fatal(err)
	}
	defer file.Close()
	var found collector
	var help string
	kept := false
	descs := map[string]*prometheus.Desc{}
	strs := map[string]string{}
	lines := bufio.NewScanner(file)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		switch {
		case strings.HasPrefix(line, "# HELP "):
			help = strings.SplitN(line, " ", 4)[3]
		case strings.HasPrefix(line, "# TYPE "):
			words := strings.Fields(line)
			kept = words[3] == "gauge" && strings.HasPrefix(words[2], prefix)
		case kept:
			found = append(found, parse(line, help, descs, strs))
		}
	}
	if err := lines.Err(); err != nil {
		log.Fatal(err)
	}
	return found
}

// parse reads one line; label values are quoted as Go quotes them. Equal strings are kept once.
func parse(line, help string, descs map[string]*prometheus.Desc, strs map[string]string) series {
	end := strings.LastIndexByte(line, ' ')
	value, err := strconv.ParseFloat(line[end+1:], 64)
	if err != nil {
		log.Fatal(err)
	}
	name, rest, _ := strings.Cut(line[:end], "{")
	var names, values []string
	for rest = strings.TrimSuffix(rest, "}"); rest != ""; rest = strings.TrimPrefix(rest, ",") {
		label, quoted, _ := strings.Cut(rest, "=")
		prefix, err := strconv.QuotedPrefix(quoted)
		if err != nil {
			log.Fatal(err)
		}
		text, err := strconv.Unquote(prefix)
		if err != nil {
			log.Fatal(err)
		}
		names = append(names, label)
		values = append(values, once(strs, text))
		rest = quoted[len(prefix):]
	}
	key := name + " " + strings.Join(names, ",")
	if descs[key] == nil {
		descs[key] = prometheus.NewDesc(name, help, names, nil)
	}
	return series{descs[key], value, values}
}

func once(strs map[string]string, text string) string {
	if kept, ok := strs[text]; ok {
		return kept
	}
	text = strings.Clone(text)
	strs[text] = text
	return text
}

func resident() int64 {
	statm, err := os.ReadFile("/proc/self/statm")
	if err != nil {
		log.Fatal(err)
	}
	pages, err := strconv.ParseInt(strings.Fields(string(statm))[1], 10, 64)
	if err != nil {
		log.Fatal(err)
	}
	return pages * int64(os.Getpagesize())
}
