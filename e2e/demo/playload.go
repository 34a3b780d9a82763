package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// playLoad is the fourth act: the same Service without and with a bound, and then with clients whose demand differs
// from the default demand. It returns the result and the mistakes.
func (s *setup) playLoad(ctx context.Context, p *page) (result string, mistakes []string, err error) {
	p.headline("4. Nearly all web pods are in zone-a")
	topology, err := s.concentratePods()
	if err != nil {
		return "", nil, err
	}
	if _, err := s.writeEndpoints(topology.webs); err != nil {
		return "", nil, err
	}
	p.print("  zone-a has six web pods now, the other zones have one each. Zone preference gives a single pod all connections of its zone.")
	p.print("  So the owner adds  vicinity.dev/max-load: %q", maxLoad)
	p.print("  It means: keep connections in their zone as long as no endpoint gets more than %g times the mean, and spread the rest. That is",
		bound)
	p.print("  the expected load: the kernel picks an endpoint for each connection at random, so that an endpoint may get a few more.")
	withoutBound, balanced, mistakes, err := s.compareLoads(ctx, p, topology, unbounded, assumed)
	if err != nil {
		return "", nil, err
	}
	p.print("\n  Then nine of ten connections come from zone-b, and a bound that assumes equal demand of all nodes does not hold.")
	p.print("  So the owner adds  vicinity.dev/demand-source: %q", measured.demand)
	p.print("  It means: plan with the measured demand. In a cluster the webhook measures it; here the demo writes the ServiceDemand.")
	topology.busy = "zone-b"
	if err := s.writeDemand(topology); err != nil {
		return "", nil, err
	}
	overloaded, balancedAgain, moreMistakes, err := s.compareLoads(ctx, p, topology, assumed, measured)
	if err != nil {
		return "", nil, err
	}
	result = fmt.Sprintf("Zone preference alone gave the busiest web pod %.2f times the mean. "+
		"With max-load %s it got %.2f%s, and %.0f %% stayed in zone. With nine of ten clients in one zone it got %.2f, and %.2f%s once demand "+
		"was measured.",
		withoutBound.relativeLoad(withoutBound.busiest()), maxLoad, balanced.relativeLoad(balanced.busiest()), balanced.byChance(),
		100*balanced.stayedShare(),
		overloaded.relativeLoad(overloaded.busiest()), balancedAgain.relativeLoad(balancedAgain.busiest()), balancedAgain.byChance())
	return result, slices.Concat(mistakes, moreMistakes), nil
}

// compareLoads shows the load of the web pods under two settings, the first of which overloads one, and the output of
// explain under the second.
func (s *setup) compareLoads(
	ctx context.Context, p *page, topology loadTopology, first, second setting,
) (overloaded, balanced load, mistakes []string, err error) {
	overloaded, errFirst := s.measureLoad(ctx, topology, first)
	balanced, errSecond := s.measureLoad(ctx, topology, second)
	planned := balanced.planned()
	disagreements := s.compareExplanations(ctx, func(p location, explanations []explanation) []string {
		return shareDisagreement(p.node.Name, explanations, planned.expected(p.zone, bound), planned.inZoneShare(p.zone, bound))
	})
	explained, err := s.explain(ctx, explainedNode)
	if err := errors.Join(err, ctx.Err()); err != nil {
		return load{}, load{}, nil, err
	}
	p.print("  Web pods of %d connections, half of them over IPv6:\n", topology.total())
	printLoads(p, overloaded, balanced)
	ofIPv4, _, _ := strings.Cut(explained, "\n\n") // the comparison has shown that IPv6 is the same
	p.quote("proxy explain "+serviceName+" --node "+explainedNode, ofIPv4)
	for _, err := range []error{errFirst, errSecond} {
		if err != nil {
			mistakes = append(mistakes, err.Error())
		}
	}
	mistakes = slices.Concat(mistakes, loadMistakes(overloaded, balanced), disagreements)
	for i := range mistakes {
		mistakes[i] = "act 4. " + mistakes[i]
	}
	return overloaded, balanced, mistakes, nil
}
