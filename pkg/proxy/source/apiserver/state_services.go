package apiserver

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
	if s.nodes.SetServiceKeys(name, keys, isMeasured(service), s.now) {
		s.blocked[name] = service
		return
	}
	delete(s.blocked, name)
	convert.Services.Apply(&s.change, name, service)
}

// deliverUnblocked delivers the Services that were held back and no longer wait.
func (s *state) deliverUnblocked() {
	for _, name := range s.nodes.TakeUnblocked() {
		if service, isHeld := s.blocked[name]; isHeld && !s.nodes.IsBlocked(name) {
			delete(s.blocked, name)
			convert.Services.Apply(&s.change, name, service)
		}
	}
}

// deliverBlocked delivers everything that is held back.
func (s *state) deliverBlocked() {
	for name, service := range s.blocked {
		convert.Services.Apply(&s.change, name, service)
	}
	clear(s.blocked)
}

// begin takes in from which objects the other nodes will be learnt.
func (s *state) begin(from *source) {
	s.forgetPeerObjects()
	var kinds []*convert.Kind
	for _, one := range from.requests {
		kinds = append(kinds, one.kind)
	}
	s.nodes.SwitchSource(kinds...)
}

// dropPeers takes the other nodes back, unless a Service needs them again. It reports whether it has.
func (s *state) dropPeers() bool {
	isDropped := s.nodes.DropPeers()
	if isDropped {
		s.forgetPeerObjects()
	}
	return isDropped
}

// forgetPeerObjects forgets the objects from which the other nodes were learnt. The nodes stay known.
func (s *state) forgetPeerObjects() {
	maps.DeleteFunc(s.objects, func(kind *convert.Kind, _ map[model.ObjectName]storedObject) bool { return nodes.IsPeerSource(kind) })
}
