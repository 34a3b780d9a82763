package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"net/netip"
	"os/exec"
	"slices"
	"strings"
)

// explanation is the part of the output of `proxy explain -o json` that the demo reads.
type explanation struct {
	Family  string `json:"family"`
	Cluster struct {
		Endpoints []string `json:"endpoints"`
		Tier      string   `json:"tier"`
		Reason    string   `json:"reason"`
		Shares    []share  `json:"shares"`
	} `json:"cluster"`
	Excluded []excluded `json:"excluded"`
}

// excluded is a skipped endpoint and the reason.
type excluded struct {
	Endpoint string `json:"endpoint"`
	Reason   string `json:"reason"`
}

// share is the share of a node's connections that a topology key gets.
type share struct {
	Key   string  `json:"key"`
	Share float64 `json:"share"`
}

// explain runs `proxy explain` for the Service on one node.
func (s *setup) explain(ctx context.Context, node string, flags ...string) (string, error) {
	args := append([]string{"explain", serviceName, "--manifests", s.manifests, "--node", node}, flags...)
	output, err := exec.CommandContext(ctx, s.program, args...).Output()
	if err == nil {
		return string(output), nil
	}
	if exitErr, ok := errors.AsType[*exec.ExitError](err); ok {
		err = fmt.Errorf("%w: %s", err, strings.TrimSpace(string(exitErr.Stderr)))
	}
	return "", fmt.Errorf("run proxy explain for %s: %w", node, err)
}

// disagreements returns, as sentences, the differences between explain's output for every node and the owner's
// settings.
func (s *setup) disagreements(ctx context.Context, act act) []string {
	return s.compareExplanations(ctx, func(loc location, explanations []explanation) []string {
		return append(disagreement(loc.node.Name, explanations, s.expected(loc.zone, act.excludedZone())),
			reasonDisagreement(loc.node.Name, explanations, inZone(act.evacuated, s.locations))...)
	})
}

// compareExplanations runs explain for every node.
func (s *setup) compareExplanations(ctx context.Context, compare func(location, []explanation) []string) []string {
	var found []string
	for _, loc := range s.locations {
		output, err := s.explain(ctx, loc.node.Name, "-o", "json")
		if err != nil {
			found = append(found, err.Error())
			continue
		}
		var explanations []explanation
		if err := json.Unmarshal([]byte(output), &explanations); err != nil {
			found = append(found, fmt.Sprintf("%s: decode the output of proxy explain -o json: %v", loc.node.Name, err))
			continue
		}
		found = append(found, compare(loc, explanations)...)
	}
	return found
}

// shareDisagreement compares the explanations for one node with a load bound with the expected endpoints and in-zone
// share.
func shareDisagreement(node string, explanations []explanation, expected []location, want float64) []string {
	found := disagreement(node, explanations, expected)
	for _, e := range explanations {
		got := 0.0
		for _, share := range e.Cluster.Shares {
			if share.Key == zoneKey {
				got = share.Share
			}
		}
		if math.Abs(got-want) > 0.001 {
			found = append(found, fmt.Sprintf("%s: explain reports that %.1f %% of the %s connections stay in the zone, want %.1f %%",
				node, 100*got, e.Family, 100*want))
		}
	}
	return found
}

// reasonDisagreement compares the endpoints that the explanations for one node skip because of an evacuation with those
// that are being evacuated.
func reasonDisagreement(node string, explanations []explanation, evacuated []location) []string {
	var found []string
	for _, e := range explanations {
		got := []string{}
		for _, skipped := range e.Excluded {
			if skipped.Reason == "NodeEvacuated" {
				got = append(got, skipped.Endpoint)
			}
		}
		slices.Sort(got)
		if want := endpoints(evacuated, addrIn(e.Family)); !slices.Equal(got, want) {
			found = append(found, fmt.Sprintf("%s: explain reports %s endpoints %v as evacuated, want %v",
				node, e.Family, got, want))
		}
	}
	return found
}

// addrIn returns a function that returns a web pod's endpoint address in a family.
func addrIn(family string) func(location) netip.Addr {
	if family == "IPv4" {
		return func(loc location) netip.Addr { return loc.web.IPv4 }
	}
	return func(loc location) netip.Addr { return loc.web.IPv6 }
}

// disagreement compares the explanations for one node, one of each family, with the expected web pods.
func disagreement(node string, explanations []explanation, expected []location) []string {
	var found []string
	families := map[string]func(location) netip.Addr{"IPv4": addrIn("IPv4"), "IPv6": addrIn("IPv6")}
	for _, e := range explanations {
		addrOf, known := families[e.Family]
		if !known {
			found = append(found, fmt.Sprintf("%s: explain reports the family %q twice, or it is unknown", node, e.Family))
			continue
		}
		delete(families, e.Family)
		want := endpoints(expected, addrOf)
		got := slices.Sorted(slices.Values(e.Cluster.Endpoints))
		if !slices.Equal(got, want) {
			found = append(found, fmt.Sprintf("%s: explain reports that %s connections go to %v, want %v", node, e.Family, got, want))
		}
	}
	for _, family := range []string{"IPv4", "IPv6"} {
		if _, missing := families[family]; missing {
			found = append(found, fmt.Sprintf("%s: explain reports nothing about %s", node, family))
		}
	}
	return found
}

func endpoints(locations []location, addrOf func(location) netip.Addr) []string {
	list := make([]string, 0, len(locations))
	for _, loc := range locations {
		list = append(list, netip.AddrPortFrom(addrOf(loc), targetPort).String())
	}
	slices.Sort(list)
	return list
}
