package explain

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/sanitize"
	"github.com/vicinity-proxy/vicinity/pkg/selection"
)

// trafficLines returns a line with the frontends (the ClusterIP, everything external, or loopback), and below it lines
// with what happens to connections.
func trafficLines(port PortReport, to string) []string {
	if !slices.ContainsFunc(port.Traffic, func(traffic Traffic) bool { return traffic.To == to }) {
		return nil
	}
	lines := frontendLines(port.Frontends, to)
	for _, traffic := range port.Traffic {
		if traffic.To == to {
			if to == toLoopback {
				lines = append(lines, traffic.Frontends...)
			}
			lines = append(lines, withCode(traffic.Message, traffic.Outcome))
		}
	}
	return lines
}

// frontendLines lists the kinds of the external frontends, one a line. For the ClusterIP the label is enough.
func frontendLines(frontends []Frontend, to string) []string {
	var lines []string
	width := 0
	for _, frontend := range frontends {
		if frontend.Kind != toClusterIP {
			width = max(width, len(frontend.Address))
		}
	}
	for _, frontend := range frontends {
		switch isClusterIP := frontend.Kind == toClusterIP; {
		case isClusterIP && to == toClusterIP:
			lines = append(lines, frontend.Address)
		case !isClusterIP && to == toExternal:
			lines = append(lines, fmt.Sprintf("%-*s  %s", width, frontend.Address, frontend.Kind))
		}
	}
	return lines
}

func sourceLines(allowed []string) []string {
	if len(allowed) == 0 {
		return nil
	}
	const sentence = "Only clients in these ranges may dial a LoadBalancerIP; connections of all others, including pods and this node, " +
		"are dropped."
	return append([]string{sentence}, allowed...)
}

// affinityLines describes the session affinity: a client has one endpoint for each choice that serves clients.
func affinityLines(port PortReport) []string {
	if port.AffinitySeconds == 0 {
		return nil
	}
	timeout := duration(port.AffinitySeconds)
	if usesChoice(port, choiceCluster) && usesChoice(port, choiceLocal) {
		return []string{fmt.Sprintf("A client keeps two endpoints for %s after its newest connection: one for frontends that a Local policy "+
			"restricts to this node, and one for all others.", timeout)}
	}
	return []string{fmt.Sprintf("A client keeps its endpoint for %s after its newest connection, whichever frontend it dials.", timeout)}
}

// usesChoice reports whether connections are spread over the endpoints of a choice.
func usesChoice(port PortReport, choice string) bool {
	return slices.ContainsFunc(port.Traffic, func(traffic Traffic) bool {
		return traffic.Choice == choice && traffic.Outcome == outcomeNames[selection.Balance]
	})
}

// duration formats seconds without zero units: 3h where Go has 3h0m0s.
func duration(seconds int) string {
	text := (time.Duration(seconds) * time.Second).String()
	if rest, ok := strings.CutSuffix(text, "m0s"); ok {
		text = rest + "m"
	}
	if rest, ok := strings.CutSuffix(text, "h0m"); ok {
		text = rest + "h"
	}
	return text
}

func healthLines(check *HealthCheck) []string {
	if check == nil {
		return nil
	}
	report := "that " + sanitize.CountOf(check.LocalEndpoints, "endpoint on this node is", "endpoints on this node are") + " ready."
	if check.LocalEndpoints == 0 {
		report = "that this node gets no connections: no endpoint on it is ready."
	}
	return []string{fmt.Sprintf("The health check on port %d reports %s", check.NodePort, report)}
}

// choiceLines returns the tier, if there is one, then the reason, then how connections are split, then the endpoints,
// with the share of each if the shares differ.
func choiceLines(choice Choice) []string {
	var lines []string
	if choice.Tier != "" {
		lines = append(lines, choice.Tier)
	}
	lines = append(lines, withCode(choice.Message, choice.Reason))
	if len(choice.Shares) > 1 {
		for _, share := range choice.Shares {
			lines = append(lines, shareLine(share))
		}
	}
	sum, width, isEven := 0, 0, true
	for _, endpoint := range choice.Endpoints {
		sum, width = sum+choice.Slots[endpoint], max(width, len(endpoint))
		isEven = isEven && choice.Slots[endpoint] == choice.Slots[choice.Endpoints[0]]
	}
	for i, endpoint := range choice.Endpoints {
		if choice.Listed > 0 && i == choice.Listed {
			return append(lines, fmt.Sprintf("→ %d more", len(choice.Endpoints)-i))
		}
		if isEven {
			lines = append(lines, "→ "+endpoint)
			continue
		}
		lines = append(lines, fmt.Sprintf("→ %-*s  %5.1f %%  (%d of %d slots)",
			width, endpoint, float64(choice.Slots[endpoint])*100/float64(sum), choice.Slots[endpoint], sum))
	}
	return lines
}

func shareLine(share Share) string {
	group, endpoints := share.Key, sanitize.Count(share.Endpoints, "endpoint")
	if share.Value != "" {
		group += " " + share.Value
	}
	if share.Used < share.Endpoints {
		endpoints = fmt.Sprintf("%d of %s", share.Used, endpoints)
	}
	return fmt.Sprintf("%5.1f %%  %s: %s", share.Share*100, group, endpoints)
}

// excludedLines returns a line for each excluded endpoint with the reason. The sentences are aligned.
func excludedLines(excluded []Excluded) []string {
	width := 0
	for _, e := range excluded {
		width = max(width, len(e.Endpoint))
	}
	lines := make([]string, 0, len(excluded))
	for _, e := range excluded {
		lines = append(lines, fmt.Sprintf("✗ %-*s  %s", width, e.Endpoint, withCode(e.Message, e.Reason)))
	}
	return lines
}

func unusedLines(unused []UnusedSlice) []string {
	lines := make([]string, 0, len(unused))
	for _, slice := range unused {
		lines = append(lines, "✗ "+withCode(slice.Message, slice.Reason))
	}
	return lines
}

// withCode appends the stable code to the sentence: the sentence is for reading, the code for searching.
func withCode(sentence, code string) string { return sentence + " [" + code + "]" }

// TopologySourceText describes a resource that is a source of other nodes' labels.
func TopologySourceText(resource string) string {
	for _, known := range model.TopologyResources {
		if known.Name == resource {
			return known.Words
		}
	}
	return resource
}
