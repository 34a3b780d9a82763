package main

import (
	"fmt"
	"slices"
)

const (
	maxLoad = "120%"
	bound   = 1.2 // the same, in times the mean
	// loadConnections are made by each client, with and without the bound, in two seconds each. What a pod gets is
	// usually within 0.05 times the mean of what it expects.
	loadConnections = 1000
)

// loadTopology is who asks and who answers in the fourth act.
type loadTopology struct {
	clients, webs []location
	// busy is the zone from which nine of ten connections come; empty if each client makes as many.
	busy string
}

// busyPart is what the clients of the busy zone ask of all.
const busyPart = 0.9

// times is how many connections a client of a zone makes.
func (c loadTopology) times(zone string) int {
	if c.busy == "" {
		return loadConnections
	}
	busy, all := len(inZone(c.busy, c.clients)), len(c.clients)
	if zone == c.busy {
		return int(busyPart * float64(all*loadConnections) / float64(busy))
	}
	return int((1 - busyPart + 1e-9) * float64(all*loadConnections) / float64(all-busy))
}

// gather adds web pods to the first zone until it has six, and leaves one to each other zone.
func (s *stage) gather() (loadTopology, error) {
	zone := s.locations[0].zone
	webs := inZone(zone, s.locations)
	for i := len(webs); i < 6; i++ {
		on := webs[i%nodesPerZone].node
		web, err := addWeb(on, fmt.Sprintf("%s%d", zoneLetters[0], i+1))
		if err != nil {
			return loadTopology{}, err
		}
		webs = append(webs, location{node: on, zone: zone, web: web})
	}
	for _, p := range s.locations {
		if len(inZone(p.zone, webs)) == 0 {
			webs = append(webs, p)
		}
	}
	return loadTopology{clients: s.locations, webs: webs}, nil
}

func (c loadTopology) total() (sum int) {
	for _, from := range c.clients {
		sum += c.times(from.zone)
	}
	return sum
}

// mean is what a web pod gets where all get as much.
func (c loadTopology) mean() float64 { return float64(c.total()) / float64(len(c.webs)) }

func (c loadTopology) demandIn(zone string) float64 {
	return float64(len(inZone(zone, c.clients)) * c.times(zone))
}

func (c loadTopology) room(zone string, most float64) float64 {
	return float64(len(inZone(zone, c.webs))) * most * c.mean()
}

// near returns which part of a zone's connections should stay there: all that its web pods may take, if none may get
// more than so many times the mean. It is worked out here, from the annotation's meaning, and not by the proxy's code.
func (c loadTopology) near(zone string, most float64) float64 {
	return min(1, c.room(zone, most)/c.demandIn(zone))
}

// expected returns the web pods that a zone's clients should reach: its own, and if those are full, all that are not.
func (c loadTopology) expected(zone string, most float64) []location {
	if c.near(zone, most) == 1 {
		return inZone(zone, c.webs)
	}
	return slices.DeleteFunc(slices.Clone(c.webs), func(p location) bool {
		return p.zone != zone && c.room(p.zone, most) <= c.demandIn(p.zone)
	})
}
