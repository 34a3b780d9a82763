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
func (c loadTopology) times(zone string) int {
	if c.busy == "" {
		return loadConnections
	}
	busy, all := len(inZone(c.busy, c.clients)), len(c.clients)
	if zone == c.busy {
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

// mean returns the number of connections of a web pod if all get the same number.
func (c loadTopology) mean() float64 { return float64(c.total()) / float64(len(c.webs)) }

func (c loadTopology) demandIn(zone string) float64 {
	return float64(len(inZone(zone, c.clients)) * c.times(zone))
}

func (c loadTopology) capacity(zone string, limit float64) float64 {
	return float64(len(inZone(zone, c.webs))) * limit * c.mean()
}

// inZoneShare returns the share of a zone's connections that should stay there: as much as its web pods may get if none
// exceeds limit times the mean. It is computed here from the meaning of the annotation, not by the proxy's code.
func (c loadTopology) inZoneShare(zone string, limit float64) float64 {
	return min(1, c.capacity(zone, limit)/c.demandIn(zone))
}

// expected returns the web pods that a zone's clients should reach: its own, and if those are full, all that are not.
func (c loadTopology) expected(zone string, limit float64) []location {
	if c.inZoneShare(zone, limit) == 1 {
		return inZone(zone, c.webs)
	}
	return slices.DeleteFunc(slices.Clone(c.webs), func(p location) bool {
		return p.zone != zone && c.capacity(p.zone, limit) <= c.demandIn(p.zone)
	})
}
