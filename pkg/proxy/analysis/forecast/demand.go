package forecast

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
)

// Weights are the demand of nodes, or of all nodes of a zone together, by name.
type Weights map[string]float64

// weightsOf sums the demand of all Services by node or zone: the first of nameLabels that a sample has.
func weightsOf(samples []Sample) (Weights, error) {
	weights := Weights{}
	for i, sample := range samples {
		name := sample.firstLabel(nameLabels...)
		if name == "" {
			return nil, fmt.Errorf("sample %d has none of the labels %s; write the query with `sum by (node)`",
				i+1, strings.Join(nameLabels, ", "))
		}
		if err := weights.add(name, sample.Value); err != nil {
			return nil, err
		}
	}
	if len(weights) == 0 {
		return nil, errors.New("the query has no results")
	}
	return weights, nil
}

// weightsByService returns the demand on each Service, by namespace/name, of the samples whose labels name a Service
// and a node or a zone.
func weightsByService(samples []Sample) map[string]Weights {
	byService := map[string]Weights{}
	for i := range samples {
		sample := &samples[i]
		location, service := sample.firstLabel(nameLabels...), sample.service()
		if location == "" || service == "" {
			continue
		}
		if byService[service] == nil {
			byService[service] = Weights{}
		}
		byService[service][location] += sample.Value
	}
	return byService
}

// add adds to a weight. The sum must be a valid weight, too.
func (w Weights) add(name string, weight float64) error {
	sum := w[name] + weight
	if isWeight := weight >= 0 && !math.IsInf(sum, 0); !isWeight { // NaN is not a weight either
		return fmt.Errorf("%s: %v is not a weight; it must be a number, 0 or more", name, weight)
	}
	w[name] = sum
	return nil
}

// Sample is one series of a measurement: its labels and its value.
type Sample struct {
	Labels map[string]string
	Value  float64
}

// UnmarshalJSON reads a sample of an instant query's result.
func (s *Sample) UnmarshalJSON(text []byte) error {
	var raw struct {
		Metric map[string]string `json:"metric"`
		Value  [2]any            `json:"value"` // the time, and the value as a string
	}
	if err := json.Unmarshal(text, &raw); err != nil {
		return err
	}
	number, _ := raw.Value[1].(string)
	value, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return fmt.Errorf("%v is not a number", raw.Value[1])
	}
	s.Labels, s.Value = raw.Metric, value
	return nil
}

// firstLabel returns the value of the first label that the sample has.
func (s *Sample) firstLabel(labels ...string) string {
	for _, label := range labels {
		if name := s.Labels[label]; name != "" {
			return name
		}
	}
	return ""
}

// service returns the namespace/name of the sample's Service; empty if it has none.
func (s *Sample) service() string {
	if s.Labels["service"] == "" {
		return ""
	}
	return s.Labels["namespace"] + "/" + s.Labels["service"]
}

// ParseSamples parses the result of an instant query as JSON: a response of Prometheus' HTTP API, or the output of
// 'promtool query instant -o json'.
func ParseSamples(text []byte) ([]Sample, error) {
	result := json.RawMessage(text)
	if isObject := bytes.HasPrefix(bytes.TrimSpace(text), []byte("{")); isObject {
		var response struct {
			Status string `json:"status"`
			Error  string `json:"error"`
			Data   struct {
				ResultType string          `json:"resultType"`
				Result     json.RawMessage `json:"result"`
			} `json:"data"`
		}
		switch err := json.Unmarshal(text, &response); {
		case err != nil || response.Status == "":
			return nil, errNoQuery
		case response.Status != "success":
			return nil, fmt.Errorf("the query failed: %s", sanitize.Truncate(response.Error))
		case response.Data.ResultType != "vector":
			return nil, fmt.Errorf("the result is a %s; use an instant query, whose result is a vector", sanitize.Truncate(response.Data.ResultType))
		}
		result = response.Data.Result
	}
	var rawSamples []json.RawMessage
	if err := json.Unmarshal(result, &rawSamples); err != nil {
		return nil, errNoQuery
	}
	samples := make([]Sample, len(rawSamples))
	for i := range rawSamples {
		if err := json.Unmarshal(rawSamples[i], &samples[i]); err != nil {
			return nil, fmt.Errorf("sample %d: %w", i+1, err)
		}
	}
	return samples, nil
}

var errNoQuery = errors.New(
	"not the result of an instant query, as Prometheus' HTTP API or 'promtool query instant -o json' prints it",
)

// nameLabels are the labels of a sample that may name a node or a zone; the first that it has is used. Our PodMonitor
// writes the node's name into instance.
var nameLabels = []string{"node", "zone", "topology_kubernetes_io_zone", "instance"}
