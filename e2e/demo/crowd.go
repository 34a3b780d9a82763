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

// crowd is who asks and who answers in the fourth act.
type crowd struct {
	clients, webs []place
	// busy is the zone from which nine of ten connections come; empty if each client makes as many.
	busy string
}

// busyPart is what the clients of the busy zone ask of all.
const busyPart = 0.9

// times is how many connections a client of a zone makes.
func (c crowd) times(zone string) int {
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
func (s *stage) gather() (crowd, error) {
	zone := s.places[0].zone
	webs := inZone(zone, s.places)
	for i := len(webs); i < 6; i++ {
		on := webs[i%nodesPerZone].node
		web, err := addWeb(on, fmt.Sprintf("%s%d", zoneLetters[0], i+1))
		if err != nil {
			return crowd{}, err
		}
		webs = append(webs, place{node: on, zone: zone, web: web})
	}
	for _, p := range s.places {
		if len(inZone(p.zone, webs)) == 0 {
			webs = append(webs, p)
		}
	}
	return crowd{clients: s.places, webs: webs}, nil
}

func (c crowd) total() (sum int) {
	for _, from := range c.clients {
		sum += c.times(from.zone)
	}
	return sum
}

// mean is what a web pod gets where all get as much.
func (c crowd) mean() float64 { return float64(c.total()) / float64(len(c.webs)) }

func (c crowd) asked(zone string) float64 {
	return float64(len(inZone(zone, c.clients)) * c.times(zone))
}

func (c crowd) room(zone string, most float64) float64 {
	return float64(len(inZone(zone, c.webs))) * most * c.mean()
}

// near returns which part of a zone's connections should stay there: all that its web pods may take, if none may get
// more than so many times the mean. It is worked out here, from the annotation's meaning, and not by the proxy's code.
func (c crowd) near(zone string, most float64) float64 {
	return min(1, c.room(zone, most)/c.asked(zone))
}

// wanted returns the web pods that a zone's clients should reach: its own, and if those are full, all that are not.
func (c crowd) wanted(zone string, most float64) []place {
	if c.near(zone, most) == 1 {
		return inZone(zone, c.webs)
	}
	return slices.DeleteFunc(slices.Clone(c.webs), func(p place) bool {
		return p.zone != zone && c.room(p.zone, most) <= c.asked(p.zone)
	})
}
