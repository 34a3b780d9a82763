package main

import (
	"fmt"
	"slices"
)

const (
	maxLoad = "120%"
	bound   = 1.2 // as a multiple of the mean
	// loadConnections is the number of connections of each client, with and without the bound; they take two seconds each.
	// The share of a pod is usually within 0.05 times the mean of its expected share.
	loadConnections = 1000
)

// loadTopology has the clients and the web pods of the fourth act.
type loadTopology struct {
	clients, webs []location
	// busy is the zone from which nine of ten connections come; empty if all clients make the same number.
	busy string
}

// busyShare is the share of the busy zone's clients in all connections.
const busyShare = 0.9

// times returns the number of connections of a client in a zone.
func (t loadTopology) times(zone string) int {
	if t.busy == "" {
		return loadConnections
	}
	busy, all := len(inZone(t.busy, t.clients)), len(t.clients)
	if zone == t.busy {
		return int(busyShare * float64(all*loadConnections) / float64(busy))
	}
	return int((1 - busyShare + 1e-9) * float64(all*loadConnections) / float64(all-busy))
}

// concentratePods adds web pods to the first zone until it has six, and keeps one in each other zone.
func (s *setup) concentratePods() (loadTopology, error) {
	zone := s.locations[0].zone
	webs := inZone(zone, s.locations)
	for i := len(webs); i < 6; i++ {
		node := webs[i%nodesPerZone].node
		web, err := addWeb(node, fmt.Sprintf("%s%d", zoneLetters[0], i+1))
		if err != nil {
			return loadTopology{}, err
		}
		webs = append(webs, location{node: node, zone: zone, web: web})
	}
	for _, loc := range s.locations {
		if len(inZone(loc.zone, webs)) == 0 {
			webs = append(webs, loc)
		}
	}
	return loadTopology{clients: s.locations, webs: webs}, nil
}

func (t loadTopology) total() (sum int) {
	for _, from := range t.clients {
		sum += t.times(from.zone)
	}
	return sum
}

// mean returns the number of connections of a web pod if all get the same number.
func (t loadTopology) mean() float64 { return float64(t.total()) / float64(len(t.webs)) }

func (t loadTopology) demandIn(zone string) float64 {
	return float64(len(inZone(zone, t.clients)) * t.times(zone))
}

func (t loadTopology) capacity(zone string, limit float64) float64 {
	return float64(len(inZone(zone, t.webs))) * limit * t.mean()
}

// inZoneShare returns the share of a zone's connections that should stay there: as much as its web pods may get if none
// exceeds limit times the mean. It is computed here from the meaning of the annotation, not by the proxy's code.
func (t loadTopology) inZoneShare(zone string, limit float64) float64 {
	return min(1, t.capacity(zone, limit)/t.demandIn(zone))
}

// expected returns the web pods that a zone's clients should reach: its own, and if those are full, all that are not.
func (t loadTopology) expected(zone string, limit float64) []location {
	if t.inZoneShare(zone, limit) == 1 {
		return inZone(zone, t.webs)
	}
	return slices.DeleteFunc(slices.Clone(t.webs), func(loc location) bool {
		return loc.zone != zone && t.capacity(loc.zone, limit) <= t.demandIn(loc.zone)
	})
}
