package main

import (
	"fmt"
	"slices"
	"strings"
)

// table shows the connections of all clients: a row for each client, a column for each web pod.
type table struct {
	zones     []string // of each location
	pods      []string // of each location
	emptied   string
	evacuated string
	rows      []row
}

const (
	firstColumn = 10
	podColumn   = 8
	zoneGap     = "  "
)

// print draws the table.
func (t table) print(p *page) {
	p.print("  %s", p.ink(bold, t.zoneLine()))
	p.print("  %s", p.ink(dim, t.podLine()))
	for _, r := range t.rows {
		p.print("  %-*s%s   %s", firstColumn, r.node, t.cells(p, r), t.outcome(p, r))
	}
	p.print("")
}

func (t table) zoneLine() string {
	var line strings.Builder
	line.WriteString(strings.Repeat(" ", firstColumn))
	for i, zone := range t.zones {
		if !t.startsZone(i) {
			continue
		}
		span := podColumn
		for j := i + 1; j < len(t.zones) && !t.startsZone(j); j++ {
			span += podColumn
		}
		switch zone {
		case t.emptied:
			zone += " (empty)"
		case t.evacuated:
			zone += " (evacuated)"
		}
		fmt.Fprintf(&line, "%s%-*s", zoneGap, span, "  "+zone)
	}
	return strings.TrimRight(line.String(), " ")
}

func (t table) podLine() string {
	var line strings.Builder
	fmt.Fprintf(&line, "%-*s", firstColumn, "from")
	for i, pod := range t.pods {
		fmt.Fprintf(&line, "%s%*s", t.gap(i), podColumn, pod)
	}
	return line.String()
}

func (t table) cells(p *page, r row) string {
	var line strings.Builder
	for i, count := range r.counts {
		expected := slices.Contains(r.expected, i)
		text := fmt.Sprintf("%*d", podColumn, count)
		switch {
		case count == 0 && !expected:
			text = p.ink(dim, fmt.Sprintf("%*s", podColumn, "·"))
		case expected && count > 0:
			text = p.ink(green, text)
		default:
			text = p.ink(red, text)
		}
		line.WriteString(t.gap(i) + text)
	}
	return line.String()
}

// outcome returns a short description of where a client's connections went.
func (t table) outcome(p *page, r row) string {
	if len(r.mistakes(t.pods)) > 0 {
		return p.ink(red, "✗ "+t.failureText(r))
	}
	if t.staysInZone(r) {
		return p.ink(green, fmt.Sprintf("✓ all %d stayed in %s", r.total(), r.zone))
	}
	return p.ink(green, fmt.Sprintf("✓ all %d spread over %s", r.total(), strings.Join(t.expectedZones(r), " and ")))
}

func (t table) failureText(r row) string {
	if len(r.failures) > 0 {
		return fmt.Sprintf("%d failed", len(r.failures))
	}
	reached := 0
	for _, i := range r.expected {
		reached += r.counts[i]
	}
	return fmt.Sprintf("%d of %d as expected", reached, connections)
}

func (t table) staysInZone(r row) bool { return slices.Equal(t.expectedZones(r), []string{r.zone}) }

func (t table) expectedZones(r row) []string {
	var zones []string
	for _, i := range r.expected {
		zones = append(zones, t.zones[i])
	}
	return slices.Compact(zones)
}

func (t table) startsZone(i int) bool { return i == 0 || t.zones[i-1] != t.zones[i] }

func (t table) gap(i int) string {
	if t.startsZone(i) {
		return zoneGap
	}
	return ""
}
