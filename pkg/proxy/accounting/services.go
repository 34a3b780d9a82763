//go:build linux

package accounting

import (
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/owners"
)

const (
	// CellsPerService is how many pairs of locality and tier there are in total for each Service that may be named. Each
	// pair is a series in three metrics. Every Service has the pairs of each locality with OtherTier to itself; the rest
	// are a common pool for whichever Service has traffic first.
	CellsPerService = 2 * len(owners.Localities)
	// mostOwn is how many pairs of that pool one Service may have.
	mostOwn = 16
	// goneFor is how long a Service must be gone until its series are deleted.
	goneFor = time.Hour
)

// services are counts by Service, of a bounded number.
type services struct {
	max     int
	named   map[model.ObjectName]*named
	rest    cells
	leftOut map[model.ObjectName]bool
	free    int // unused pairs of the pool
	// reserved is how many of those named have a reserved place. If all have one, there is no search for a place to give
	// up: every connection of a Service that is left out would search through all of them.
	reserved int
}

// named is a Service with series of its own.
type named struct {
	cells      cells
	own        int // pairs of the common pool
	isReserved bool
	last       time.Time // when it had traffic
	gone       time.Time // since when the Service is gone; zero if it exists
}

func newServices(most int) *services {
	return &services{
		max: most, named: map[model.ObjectName]*named{}, rest: cells{}, leftOut: map[model.ObjectName]bool{},
		free: most * (CellsPerService - len(owners.Localities)),
	}
}

// at returns where a connection of a Service counts.
func (s *services) at(origin *owners.Origin, where cell, now time.Time) *Count {
	of := s.name(origin)
	if of == nil {
		s.leftOut[origin.Service] = true
		return s.rest.at(where)
	}
	of.last = now
	count := of.cells[where]
	if count != nil {
		return count
	}
	if where.tier != OtherTier {
		if s.free == 0 || of.own == mostOwn {
			where.tier = OtherTier
		} else {
			s.free--
			of.own++
		}
	}
	return of.cells.at(where)
}

// name returns the series of a Service; nil if there is no place for more.
func (s *services) name(origin *owners.Origin) *named {
	of := s.named[origin.Service]
	if of == nil {
		if hasPlace := len(s.named) < s.max || origin.Reserved && s.giveUpOne(); !hasPlace {
			return nil
		}
		of = &named{cells: cells{}}
		s.named[origin.Service] = of
		delete(s.leftOut, origin.Service)
	}
	s.reserve(of, origin.Reserved)
	return of
}

func (s *services) reserve(of *named, isReserved bool) {
	switch {
	case isReserved && !of.isReserved:
		s.reserved++
	case !isReserved && of.isReserved:
		s.reserved--
	}
	of.isReserved = isReserved
}

// giveUpOne takes the place of the Service that had no traffic for longest, unless all places are reserved.
func (s *services) giveUpOne() bool {
	if s.reserved == len(s.named) {
		return false
	}
	var longest model.ObjectName
	var since *named
	for name, of := range s.named {
		isLonger := since == nil || of.last.Before(since.last) || of.last.Equal(since.last) && name.Compare(longest) < 0
		if !of.isReserved && isLonger {
			longest, since = name, of
		}
	}
	s.remove(longest)
	s.leftOut[longest] = true
	return true
}

func (s *services) remove(name model.ObjectName) {
	s.free += s.named[name].own
	s.reserve(s.named[name], false)
	delete(s.named, name)
}

// forget drops the Services that are gone for long.
func (s *services) forget(exists func(model.ObjectName) bool, now time.Time) {
	for name, of := range s.named {
		switch {
		case exists(name):
			of.gone = time.Time{}
		case of.gone.IsZero():
			of.gone = now
		case now.Sub(of.gone) >= goneFor:
			s.remove(name)
		}
	}
	for name := range s.leftOut {
		if !exists(name) {
			delete(s.leftOut, name)
		}
	}
}
