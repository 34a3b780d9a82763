package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	dto "github.com/prometheus/client_model/go"
	"github.com/prometheus/common/expfmt"
	prometheus "github.com/prometheus/common/model"

	"github.com/vicinity-proxy/vicinity/pkg/limited"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/forecast"
)

// measured is what was measured of who asks, and of bytes.
type measured struct {
	weights forecast.Weights
	// asked is what nodes ask of single Services.
	asked map[string]forecast.Weights
	// traffic is nil unless there is a price.
	traffic forecast.Traffic
}

// readMeasured reads --demand: a file, or a folder with the metrics of each node in NODE.prom.
func (f *forecastFlags) readMeasured() (m measured, err error) {
	if info, err := os.Stat(f.demand); err == nil && info.IsDir() {
		return readMetrics(f.demand)
	}
	text, err := limited.ReadFile(f.demand, maxDemand)
	if err != nil {
		return m, err
	}
	if m.weights, err = forecast.ParseWeights(text); err != nil {
		return m, err
	}
	samples, err := forecast.ParseSamples(text)
	m.asked = forecast.AskedOf(samples)
	if err == nil && f.perGB > 0 {
		m.traffic, err = forecast.TrafficOf(samples)
	}
	return m, err
}

// The metrics that are read. A proxy without --account has none of them.
const (
	connectionsMetric        = "vicinity_connections_total"
	trafficMetric            = "vicinity_traffic_bytes_total"
	serviceConnectionsMetric = "vicinity_service_connections_total"
	serviceTrafficMetric     = "vicinity_service_traffic_bytes_total"
	startMetric              = "process_start_time_seconds"
)

// readMetrics reads what proxies answered at /metrics: a node asks as much as it made connections a second since its proxy
// began; the file was written when that ended.
func readMetrics(folder string) (m measured, err error) {
	files, err := filepath.Glob(filepath.Join(folder, "*.prom"))
	if err != nil {
		return m, err
	}
	if len(files) == 0 {
		return m, errors.New("there is no NODE.prom in the folder: what /metrics of each node's proxy says")
	}
	m.weights = forecast.Weights{}
	var asked, traffic []forecast.Sample
	for _, file := range files {
		node := strings.TrimSuffix(filepath.Base(file), ".prom")
		rates, err := readNode(file, node)
		if err != nil {
			return m, fmt.Errorf("%s: %w", filepath.Base(file), err)
		}
		m.weights[node] = rates.connections
		asked, traffic = append(asked, rates.asked...), append(traffic, rates.traffic...)
	}
	m.asked = forecast.AskedOf(asked)
	m.traffic, err = forecast.TrafficOf(traffic)
	return m, err
}

// rates are connections and bytes a second of one node.
type rates struct {
	connections    float64
	asked, traffic []forecast.Sample // by Service
}

func readNode(file, node string) (r rates, err error) {
	text, err := limited.ReadFile(file, maxDemand)
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
	for _, metric := range counted.GetMetric() {
		r.connections += metric.GetCounter().GetValue() / seconds
	}
	r.asked = samplesOf(families[serviceConnectionsMetric], node, seconds)
	byService := families[serviceTrafficMetric]
	if byService == nil {
		byService = families[trafficMetric]
	}
	r.traffic = samplesOf(byService, node, seconds)
	return r, nil
}

// samplesOf are the series of a node's counter, by the second.
func samplesOf(family *dto.MetricFamily, node string, seconds float64) []forecast.Sample {
	var samples []forecast.Sample
	for _, metric := range family.GetMetric() {
		labels := map[string]string{"node": node}
		for _, label := range metric.GetLabel() {
			labels[label.GetName()] = label.GetValue()
		}
		samples = append(samples, forecast.Sample{Labels: labels, Value: metric.GetCounter().GetValue() / seconds})
	}
	return samples
}

// parsePrice reads a price, such as 0.01/GB.
func parsePrice(text string) (perGB float64, err error) {
	number, isPerGB := strings.CutSuffix(text, "/GB")
	perGB, err = strconv.ParseFloat(number, 64)
	if isPrice := err == nil && isPerGB && perGB > 0 && perGB < 1e6; !isPrice {
		return 0, fmt.Errorf("%q is no price of a gigabyte, such as 0.01/GB", text)
	}
	return perGB, nil
}
