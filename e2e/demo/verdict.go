package main

import (
	"fmt"
	"slices"
)

// mistakes says of one client what went elsewhere than wanted, in sentences; none if all is well.
//
// With 60 connections, chance passes over a given one of four endpoints once in thirty million times. So an endpoint
// that no connection reached counts as a mistake too.
func (r row) mistakes(pods []string) []string {
	var found []string
	for _, failure := range r.failures {
		found = append(found, fmt.Sprintf("%s: a connection failed: %v", r.node, failure))
	}
	for place, count := range r.counts {
		isWanted := slices.Contains(r.wanted, place)
		switch {
		case count > 0 && !isWanted:
			found = append(found, fmt.Sprintf("%s: %d of %d connections went to %s, which the owner did not ask for",
				r.node, count, r.total(), pods[place]))
		case count == 0 && isWanted && len(r.failures) == 0:
			found = append(found, fmt.Sprintf("%s: no connection reached %s, which is as near as the others", r.node, pods[place]))
		}
	}
	if missing := connections - r.total(); missing > 0 && len(r.failures) == 0 {
		found = append(found, fmt.Sprintf("%s: %d connections were not made", r.node, missing))
	}
	return found
}
