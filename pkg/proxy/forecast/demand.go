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

// Weights are how much nodes ask, or the nodes of zones together, by name.
type Weights map[string]float64

// ParseWeights reads weights by node or zone: a YAML or JSON mapping from names to numbers, or what Prometheus answers
// to an instant query, as its API or promtool's -o json prints it. There the label node, zone or
// topology_kubernetes_io_zone is the name.
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
		return samples.weights()
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

// add adds to a weight. The sum must be one, too.
func (w Weights) add(name string, weight float64) error {
	sum := w[name] + weight
	if isWeight := weight >= 0 && !math.IsInf(sum, 0); !isWeight { // nor is NaN
		return fmt.Errorf("%s: %v is no weight; it must be a number, 0 or more", name, weight)
	}
	w[name] = sum
	return nil
}

type sample struct {
	Metric map[string]string `json:"metric"`
	Value  [2]any            `json:"value"` // the time, and the value as a text
}

type vector []sample

// samplesIn finds the samples of an instant query, and reports whether the text is a result at all.
func samplesIn(text []byte) (samples vector, isResult bool, err error) {
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
		err := json.Unmarshal(answer.Data.Result, &samples)
		return samples, true, err
	}
	if len(text) > 0 && text[0] == '[' {
		err := json.Unmarshal(text, &samples)
		return samples, true, err
	}
	return nil, false, nil
}

// nameLabels are the labels of a sample that name a node or a zone, the first that it has.
var nameLabels = [...]string{"node", "zone", "topology_kubernetes_io_zone"}

func (v vector) weights() (Weights, error) {
	weights, seen := Weights{}, map[string]bool{}
	for i, sample := range v {
		series := fmt.Sprint(sample.Metric) // in the order of the labels
		if seen[series] {
			return nil, fmt.Errorf("sample %d is of the same series as one before it: %s", i+1, printable.Short(series))
		}
		seen[series] = true
		name := ""
		for _, label := range nameLabels {
			if name == "" {
				name = sample.Metric[label]
			}
		}
		text, _ := sample.Value[1].(string)
		value, err := strconv.ParseFloat(text, 64)
		switch {
		case name == "":
			return nil, fmt.Errorf("sample %d has none of the labels %s; write the query with `sum by (node)`",
				i+1, strings.Join(nameLabels[:], ", "))
		case err != nil:
			return nil, fmt.Errorf("sample %d: %v is no number", i+1, sample.Value[1])
		}
		if err := weights.add(name, value); err != nil {
			return nil, err
		}
	}
	if len(weights) == 0 {
		return nil, errors.New("the query found nothing")
	}
	return weights, nil
}

// Demand returns which part of all each node of a cluster asks: by its own weight, or its part of its zone's. It fails if a
// name belongs to no node or zone, or to both, or there is no demand at all.
func (w Weights) Demand(cluster Cluster) (fleet.Demand, error) {
	nodes, inZone := map[string]bool{}, map[string]int{}
	for _, node := range cluster.nodes {
		nodes[node.Name] = true
	}
	zoneOf := func(labels map[string]string) string { return labels[string(policy.Zone)] }
	for _, node := range cluster.nodes {
		if _, named := w[node.Name]; !named {
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
