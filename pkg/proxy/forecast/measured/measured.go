// Package measured reads measurements of a cluster's connections and bytes, for a forecast.
package measured

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	prometheus "github.com/prometheus/common/model"

	"github.com/vicinity-proxy/vicinity/pkg/limited"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/forecast"
)

// Demand is the demand of clients, and how many bytes it moves.
type Demand struct {
	Weights forecast.Weights
	// ByService is the demand on single Services.
	ByService map[string]forecast.Weights
	// Traffic is nil if it was not wanted.
	Traffic forecast.Traffic
}

// maxFile bounds a file, in bytes: ten series of each of 20,000 Nodes.
const maxFile = 64 << 20

// Read reads a file, or a folder with the metrics of each node in NODE.prom.
func Read(path string, wantsTraffic bool) (d Demand, err error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		return readMetrics(path)
	}
	text, err := limited.ReadFile(path, maxFile)
	if err != nil {
		return d, err
	}
	if d.Weights, err = forecast.ParseWeights(text); err != nil {
		return d, err
	}
	samples, err := forecast.ParseSamples(text)
	d.ByService = forecast.WeightsByService(samples)
	if err == nil && wantsTraffic {
		d.Traffic, err = forecast.TrafficOf(samples)
	}
	return d, err
}

// The metrics that are read. A proxy without --account has none of them.
const (
	connectionsMetric        = "vicinity_connections_total"
	trafficMetric            = "vicinity_traffic_bytes_total"
	serviceConnectionsMetric = "vicinity_service_connections_total"
	serviceTrafficMetric     = "vicinity_service_traffic_bytes_total"
	startMetric              = "process_start_time_seconds"
	outcomeLabel, answered   = "outcome", "answered"
)

// readMetrics reads the answers of proxies at /metrics: a node's demand is its connections a second, from the start of
// its proxy until the file was written.
func readMetrics(folder string) (d Demand, err error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.prom"))
	if err != nil {
		return d, err
	}
	if len(files) == 0 {
		return d, errors.New("there is no NODE.prom in the folder: what /metrics of each node's proxy says")
	}
	d.Weights = forecast.Weights{}
	var asked, traffic []forecast.Sample
	for _, file := range files {
		node := strings.TrimSuffix(filepath.Base(file), ".prom")
		rates, err := readNode(file, node)
		if err != nil {
			return d, fmt.Errorf("%s: %w", filepath.Base(file), err)
		}
		d.Weights[node] = rates.connections
		asked, traffic = append(asked, rates.asked...), append(traffic, rates.traffic...)
	}
	d.ByService = forecast.WeightsByService(asked)
	d.Traffic, err = forecast.TrafficOf(traffic)
	return d, err
}

// rates are connections and bytes a second of one node.
type rates struct {
	connections    float64
	asked, traffic []forecast.Sample // by Service
}

func readNode(file, node string) (r rates, err error) {
	text, err := limited.ReadFile(file, maxFile)
	if err != nil {
		return r, err
	}
	info, err := os.Stat(file)
	if err != nil {
		return r, err
	}
	parser := expfmt.NewTextParser(prometheus.LegacyValidation)
	families, err := parser.TextToMetricFamilies(bytes.NewReader(text))
	if err != nil {
		return r, err
	}
	counted, began := families[connectionsMetric], families[startMetric]
	if counted == nil || began == nil || len(began.GetMetric()) == 0 {
		return r, fmt.Errorf("it lacks %s or %s: run the proxy with --account=services", connectionsMetric, startMetric)
	}
	seconds := float64(info.ModTime().UnixNano())/1e9 - began.GetMetric()[0].GetGauge().GetValue()
	if seconds <= 0 {
		return r, errors.New("the file is older than the proxy whose metrics it has")
	}
	for _, series := range samplesOf(counted, node, seconds) {
		r.connections += series.Value
	}
	r.asked = samplesOf(families[serviceConnectionsMetric], node, seconds)
	byService := families[serviceTrafficMetric]
	if byService == nil {
		byService = families[trafficMetric]
	}
	r.traffic = samplesOf(byService, node, seconds)
	return r, nil
}

// samplesOf are the series of a node's counter, by the second, except for those of connections that came to nothing.
func samplesOf(family *dto.MetricFamily, node string, seconds float64) []forecast.Sample {
	var samples []forecast.Sample
	for _, metric := range family.GetMetric() {
		labels := map[string]string{"node": node}
		for _, label := range metric.GetLabel() {
			labels[label.GetName()] = label.GetValue()
		}
		if outcome, has := labels[outcomeLabel]; has && outcome != answered {
			continue
		}
		samples = append(samples, forecast.Sample{Labels: labels, Value: metric.GetCounter().GetValue() / seconds})
	}
	return samples
}
