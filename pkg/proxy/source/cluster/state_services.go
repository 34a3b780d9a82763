package cluster

import (
	"maps"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/nodes"
)

// decideService delivers a Service, or holds it back while the labels of other nodes that it names, or measured demand,
// are not known yet. Its last version stays in force.
func (s *state) decideService(name model.ObjectName, service *model.Service) {
	var keys []policy.Key
	if service != nil {
		keys = service.Topology.NodeKeys()
	}
	if s.nodes.Ask(name, keys, isMeasured(service), s.now) {
		s.held[name] = service
		return
	}
	delete(s.held, name)
	convert.Services.Note(&s.change, name, service)
}

// serve delivers the Services that were held back and no longer wait.
func (s *state) serve() {
	for _, name := range s.nodes.Released() {
		if service, isHeld := s.held[name]; isHeld && !s.nodes.Waits(name) {
			delete(s.held, name)
			convert.Services.Note(&s.change, name, service)
		}
	}
}

// serveHeld delivers everything that is held back.
func (s *state) serveHeld() {
	for name, service := range s.held {
		convert.Services.Note(&s.change, name, service)
	}
	clear(s.held)
}

// begin takes in from which objects the other nodes will be learnt.
func (s *state) begin(from *source) {
	s.forgetOthers()
	var kinds []*convert.Kind
	for _, one := range from.asked {
		kinds = append(kinds, one.kind)
	}
	s.nodes.Begin(kinds...)
}

// dropOthers takes the other nodes back, unless a Service needs them again. It reports whether it has.
func (s *state) dropOthers() bool {
	isDropped := s.nodes.Drop()
	if isDropped {
		s.forgetOthers()
	}
	return isDropped
}

// forgetOthers forgets the objects from which the other nodes were learnt. The nodes stay known.
func (s *state) forgetOthers() {
	maps.DeleteFunc(s.objects, func(kind *convert.Kind, _ map[model.ObjectName]kept) bool { return nodes.AreOthers(kind) })
}
