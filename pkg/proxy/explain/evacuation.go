package explain

import (
	"cmp"
	"fmt"
	"io"
	"maps"
	"slices"
	"strings"
	"text/tabwriter"

	"github.com/vicinity-proxy/vicinity/pkg/printable"
)

// Evacuation is what the evacuation of some nodes would do to a Service port in one family, seen from all nodes.
//
// Its JSON names are an interface: scripts read them.
type Evacuation struct {
	Service  string `json:"service"` // namespace/name
	Port     string `json:"port"`    // the port's name, often empty
	Number   int    `json:"number"`
	Protocol string `json:"protocol"`
	Family   string `json:"family"`
	Now      Spread `json:"now"`
	Then     Spread `json:"then"`
	// OnlyEvacuated are the nodes whose connections, or some of them, would go on to evacuated nodes, because their keys or
	// policies allow no other endpoint; never null.
	OnlyEvacuated []string `json:"onlyEvacuated"`
}

// Spread is how the connections of all nodes are spread, if each node asks alike.
type Spread struct {
	Endpoints int    `json:"endpoints"` // that get any
	Busiest   string `json:"busiest"`   // address:port; empty if nobody gets any
	// Load is what the busiest expects, as a multiple of what an endpoint expects now on average.
	Load float64 `json:"load"`
}

// Evacuations compares what all nodes do now with what they would do. Both are in the order that Ports has for each
// node.
func Evacuations(now, then []Port) []Evacuation {
	type key struct{ service, port, protocol, family string }
	type seen struct {
		Evacuation
		now, then map[string]float64 // what each endpoint gets
	}
	keyOf := func(port *Port) key { return key{port.Service, fmt.Sprint(port.Number), port.Protocol, port.Family} }
	all, order := map[key]*seen{}, []*seen(nil)
	for i := range now {
		port := &now[i]
		one := all[keyOf(port)]
		if one == nil {
			one = &seen{
				Evacuation: Evacuation{
					Service: port.Service, Port: port.Port, Number: port.Number, Protocol: port.Protocol, Family: port.Family, OnlyEvacuated: []string{},
				},
				now: map[string]float64{}, then: map[string]float64{},
			}
			all[keyOf(port)], order = one, append(order, one)
		}
		spread(one.now, port)
	}
	for i := range then {
		port := &then[i]
		one := all[keyOf(port)]
		spread(one.then, port)
		if port.Cluster.Reason == onlyEvacuated || port.Local != nil && port.Local.Reason == onlyEvacuated {
			one.OnlyEvacuated = append(one.OnlyEvacuated, port.Node)
		}
	}
	list := make([]Evacuation, len(order))
	for i, one := range order {
		sum := 0.0
		for _, load := range one.now {
			sum += load
		}
		one.Now, one.Then = spreadOf(one.now, sum/float64(max(1, len(one.now)))), spreadOf(one.then, sum/float64(max(1, len(one.now))))
		list[i] = one.Evacuation
	}
	return list
}

// onlyEvacuated is the reason of a choice that has nobody else.
const onlyEvacuated = "OnlyEvacuated"

// spread adds one node's connections to the ClusterIP.
func spread(loads map[string]float64, port *Port) {
	choice, all := &port.Cluster, 0
	if port.Local != nil && len(choice.Slots) == 0 {
		choice = port.Local
	}
	for _, slots := range choice.Slots {
		all += slots
	}
	for endpoint, slots := range choice.Slots {
		loads[endpoint] += float64(slots) / float64(all)
	}
}

func spreadOf(loads map[string]float64, mean float64) Spread {
	s := Spread{Endpoints: len(loads)}
	for _, endpoint := range slices.Sorted(maps.Keys(loads)) {
		if load := loads[endpoint] / mean; mean > 0 && load > s.Load+1e-9 {
			s.Busiest, s.Load = endpoint, load
		}
	}
	return s
}

// EvacuationText writes the comparison for a person: what is worst comes first.
func EvacuationText(w io.Writer, nodes []string, list []Evacuation) error {
	list = slices.Clone(list)
	slices.SortStableFunc(list, func(a, b Evacuation) int {
		return cmp.Or(cmp.Compare(len(b.OnlyEvacuated), len(a.OnlyEvacuated)), cmp.Compare(b.Then.Load-b.Now.Load, a.Then.Load-a.Now.Load))
	})
	printable.Fprintf(w, "If %s were being evacuated, with each Node asking alike:\n\n", Counted(nodes))
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	printable.Fprintf(table, "SERVICE PORT\tENDPOINTS\tBUSIEST NOW\t\tBUSIEST THEN\t\tNOTHING ELSE ON\n")
	for _, one := range list {
		name := strings.Join(strings.Fields(fmt.Sprintf("%s %s %d/%s %s", one.Service, one.Port, one.Number, one.Protocol, one.Family)), " ")
		stuck := "-"
		if len(one.OnlyEvacuated) > 0 {
			stuck = Counted(one.OnlyEvacuated)
		}
		printable.Fprintf(table, "%s\t%d → %d\t%s\t%.2f\t%s\t%.2f\t%s\n", name, one.Now.Endpoints, one.Then.Endpoints,
			cmp.Or(one.Now.Busiest, "-"), one.Now.Load, cmp.Or(one.Then.Busiest, "-"), one.Then.Load, stuck)
	}
	if err := table.Flush(); err != nil {
		return fmt.Errorf("write the comparison: %w", err)
	}
	_, err := printable.Fprintf(w, `
Loads are multiples of what an endpoint expects now on average. Where nothing else may be used, because a list of
topology keys or a Local policy allows no other endpoint, those on evacuated nodes go on serving.
`)
	if err != nil {
		return fmt.Errorf("write the comparison: %w", err)
	}
	return nil
}

// Counted names a few things, and counts many.
func Counted(names []string) string {
	const few = 4
	if len(names) <= few {
		return strings.Join(names, ", ")
	}
	return fmt.Sprintf("%s and %d more", strings.Join(names[:few-1], ", "), len(names)-few+1)
}
