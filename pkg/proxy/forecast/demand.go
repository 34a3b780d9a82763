package forecast

import (
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"math"
	"slices"
	"strconv"
	"strings"

	"sigs.k8s.io/yaml"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/printable"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/explain"
	"github.com/vicinity-proxy/vicinity/pkg/selection/fleet"
)

// Weights are the demand of nodes, or of all nodes of a zone together, by name.
type Weights map[string]float64

// ParseWeights reads weights by node or zone: a YAML or JSON mapping from names to numbers, or what Prometheus answers
// to an instant query, as its API or promtool's -o json prints it. There the first of nameLabels is the name.
func ParseWeights(text []byte) (Weights, error) {
	converted, err := yaml.YAMLToJSONStrict(text) // which refuses a name that stands there twice
	if err != nil {
		return nil, err
	}
	samples, isResult, err := samplesIn(converted)
	if isResult || err != nil {
		if err != nil {
			return nil, err
		}
		return weightsOf(samples)
	}
	var given map[string]*float64 // nil: there is a name without a number
	if err := json.Unmarshal(converted, &given); err != nil {
		return nil, errors.New("it is neither a mapping from nodes or zones to numbers, nor the result of an instant query")
	}
	weights := Weights{}
	for _, name := range slices.Sorted(maps.Keys(given)) {
		if given[name] == nil {
			return nil, fmt.Errorf("%s: the number is missing", name)
		}
		if err := weights.add(name, *given[name]); err != nil {
			return nil, err
		}
	}
	if len(weights) == 0 {
		return nil, errors.New("it has no weight")
	}
	return weights, nil
}

// AskedOf returns the demand of nodes on each Service, by namespace/name: samples whose labels name a node and a
// Service.
func AskedOf(samples []Sample) map[string]Weights {
	asked := map[string]Weights{}
	for i := range samples {
		sample := &samples[i]
		node, service := sample.nameOf("node", "instance"), sample.service()
		if node == "" || service == "" {
			continue
		}
		if asked[service] == nil {
			asked[service] = Weights{}
		}
		asked[service][node] += sample.Value
	}
	return asked
}

// add adds to a weight. The sum must be a valid weight, too.
func (w Weights) add(name string, weight float64) error {
	sum := w[name] + weight
	if isWeight := weight >= 0 && !math.IsInf(sum, 0); !isWeight { // nor is NaN
		return fmt.Errorf("%s: %v is not a weight; it must be a number, 0 or more", name, weight)
	}
	w[name] = sum
	return nil
}

// Sample is one series of what was measured: its labels, and its value.
type Sample struct {
	Labels map[string]string
	Value  float64
}

// UnmarshalJSON reads a sample of an instant query's result.
func (s *Sample) UnmarshalJSON(text []byte) error {
	var written struct {
		Metric map[string]string `json:"metric"`
		Value  [2]any            `json:"value"` // the time, and the value as a text
	}
	if err := json.Unmarshal(text, &written); err != nil {
		return err
	}
	number, _ := written.Value[1].(string)
	value, err := strconv.ParseFloat(number, 64)
	if err != nil {
		return fmt.Errorf("%v is not a number", written.Value[1])
	}
	s.Labels, s.Value = written.Metric, value
	return nil
}

// nameOf returns the value of the first label that the sample has.
func (s *Sample) nameOf(labels ...string) string {
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

// ParseSamples reads the result of an instant query. Any other text has no samples.
func ParseSamples(text []byte) ([]Sample, error) {
	converted, err := yaml.YAMLToJSONStrict(text)
	if err != nil {
		return nil, err
	}
	samples, _, err := samplesIn(converted)
	return samples, err
}

// samplesIn finds the samples of an instant query, and reports whether the text is a result at all.
func samplesIn(text []byte) (samples []Sample, isResult bool, err error) {
	var answer struct {
		Status string `json:"status"`
		Error  string `json:"error"`
		Data   struct {
			ResultType string          `json:"resultType"`
			Result     json.RawMessage `json:"result"`
		} `json:"data"`
	}
	if json.Unmarshal(text, &answer) == nil && answer.Status != "" {
		switch {
		case answer.Status != "success":
			return nil, true, fmt.Errorf("the query failed: %s", printable.Short(answer.Error))
		case answer.Data.ResultType != "vector":
			return nil, true, fmt.Errorf("the result is a %s; ask an instant query, whose result is a vector", answer.Data.ResultType)
		}
		samples, err = readSamples(answer.Data.Result)
		return samples, true, err
	}
	if len(text) > 0 && text[0] == '[' {
		samples, err = readSamples(text)
		return samples, true, err
	}
	return nil, false, nil
}

// readSamples names the sample in its errors.
func readSamples(text []byte) ([]Sample, error) {
	var written []json.RawMessage
	if err := json.Unmarshal(text, &written); err != nil {
		return nil, err
	}
	samples := make([]Sample, len(written))
	for i := range written {
		if err := json.Unmarshal(written[i], &samples[i]); err != nil {
			return nil, fmt.Errorf("sample %d: %w", i+1, err)
		}
	}
	return samples, nil
}

// nameLabels are the labels of a sample that may name a node or a zone; the first that it has counts. Our PodMonitor
// writes the node's name into instance.
var nameLabels = []string{"node", "zone", "topology_kubernetes_io_zone", "instance"}

func weightsOf(samples []Sample) (Weights, error) {
	weights, seen := Weights{}, map[string]bool{}
	for i, sample := range samples {
		series := fmt.Sprint(sample.Labels) // in the order of the labels
		if seen[series] {
			return nil, fmt.Errorf("sample %d is of the same series as one before it: %s", i+1, printable.Short(series))
		}
		seen[series] = true
		name := sample.nameOf(nameLabels...)
		if name == "" {
			return nil, fmt.Errorf("sample %d has none of the labels %s; write the query with `sum by (node)`",
				i+1, strings.Join(nameLabels, ", "))
		}
		if err := weights.add(name, sample.Value); err != nil {
			return nil, err
		}
	}
	if len(weights) == 0 {
		return nil, errors.New("the query found nothing")
	}
	return weights, nil
}

// Demand returns each node's share of all demand: by its own weight, or by its part of its zone's. It fails if a name
// belongs to no node or zone, or to both, or there is no demand at all.
func (w Weights) Demand(cluster Cluster) (fleet.Demand, error) {
	nodes, inZone := map[string]bool{}, map[string]int{}
	for _, node := range cluster.nodes {
		nodes[node.Name] = true
	}
	zoneOf := func(labels map[string]string) string { return labels[string(policy.Zone)] }
	for _, node := range cluster.nodes {
		if _, named := w[node.Name]; !named && policy.IsLinux(node.Labels) {
			inZone[zoneOf(node.Labels)]++
		}
	}
	var unknown, ambiguous []string
	all := 0.0
	for _, name := range slices.Sorted(maps.Keys(w)) {
		isZone := inZone[name] > 0 && name != ""
		switch {
		case !nodes[name] && !isZone:
			unknown = append(unknown, name)
		case nodes[name] && isZone:
			ambiguous = append(ambiguous, name)
		}
		all += w[name]
	}
	switch {
	case len(unknown) > 0:
		return nil, fmt.Errorf("no Node has this name or is in this zone: %s", explain.Counted(unknown))
	case len(ambiguous) > 0:
		return nil, fmt.Errorf("a Node and a zone have this name: %s", explain.Counted(ambiguous))
	case all == 0:
		return nil, errors.New("all weights are 0")
	case math.IsInf(all, 0):
		return nil, errors.New("the weights are too large to be added")
	}
	return func(node *model.Node) float64 {
		if weight, named := w[node.Name]; named {
			return weight / all
		}
		zone := zoneOf(node.Labels)
		return w[zone] / all / float64(max(1, inZone[zone]))
	}, nil
}
