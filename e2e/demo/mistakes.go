package main

import (
	"fmt"
	"math"
	"slices"
)

// mistakes returns, as sentences, the connections of one client that went to unexpected web pods.
//
// With 60 connections, chance misses a given one of four endpoints once in thirty million times. So an endpoint without
// connections counts as a mistake, too.
func (r row) mistakes(pods []string) []string {
	var found []string
	for _, failure := range r.failures {
		found = append(found, fmt.Sprintf("%s: a connection failed: %v", r.node, failure))
	}
	for index, count := range r.counts {
		isExpected := slices.Contains(r.expected, index)
		switch {
		case count > 0 && !isExpected:
			found = append(found, fmt.Sprintf("%s: %d of %d connections went to %s, which is not an expected endpoint",
				r.node, count, r.total(), pods[index]))
		case count == 0 && isExpected && len(r.failures) == 0:
			found = append(found, fmt.Sprintf("%s: no connection reached %s, which is as near as the others", r.node, pods[index]))
		}
	}
	if missing := connections - r.total(); missing > 0 && len(r.failures) == 0 {
		found = append(found, fmt.Sprintf("%s: %d connections were not made", r.node, missing))
	}
	return found
}

// deviations is the number of standard deviations that chance exceeds once in a hundred thousand counts.
const deviations = 4.4

// maxByChance returns the maximum load of the busiest web pod under the bound, as a multiple of the mean.
func (l load) maxByChance() float64 {
	const rounding = 0.03 // of slots, as the README states
	return bound*(1+rounding) + deviations*math.Sqrt(bound/l.mean())
}

// byChance returns a remark if chance explains why the busiest web pod exceeds the bound; otherwise it is empty.
func (l load) byChance() string {
	if times := l.relativeLoad(l.busiest()); times <= l.maxLoad || times > l.maxByChance() {
		return ""
	}
	return fmt.Sprintf(" (%.2f, and chance)", l.maxLoad)
}

// loadMistakes returns, as sentences, the results of the fourth act that contradict the annotations; none if all is
// well. One setting overloads a web pod, and the other one does not.
func loadMistakes(overloaded, balanced load) []string {
	var found []string
	if times := overloaded.relativeLoad(overloaded.busiest()); times <= overloaded.maxByChance() {
		found = append(found, fmt.Sprintf("%s the busiest web pod got %.2f times the mean: it is not overloaded, so the bound has no effect",
			overloaded.name, times))
	}
	if times := balanced.relativeLoad(balanced.busiest()); times > balanced.maxByChance() {
		found = append(found, fmt.Sprintf("%s: %s got %.2f times the mean; max-load is %s, and chance explains at most %.2f",
			balanced.name, balanced.webs[balanced.busiest()].web.Name, times, maxLoad, balanced.maxByChance()))
	}
	return slices.Concat(found, overloaded.mistakes(), balanced.mistakes())
}

// mistakes returns the other mistakes under one setting.
func (l load) mistakes() []string {
	var found []string
	for _, failure := range l.failures {
		found = append(found, fmt.Sprintf("%s: a connection failed: %v", l.name, failure))
	}
	want := l.expectedShare()
	if noise := deviations * math.Sqrt(want*(1-want)/float64(l.total())); math.Abs(l.stayedShare()-want) > noise {
		found = append(found, fmt.Sprintf("%s: %d of %d connections stayed in their zone, want %.0f",
			l.name, l.stayedCount, l.total(), want*float64(l.total())))
	}
	return found
}
