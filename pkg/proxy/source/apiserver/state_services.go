package apiserver

import (
	"maps"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/nodes"
)

// decideService delivers a Service, or blocks it while the labels of other nodes that it names, or measured demand, are
// not known yet. Its last version stays active.
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

// deliverUnblocked delivers the blocked Services that no longer need to wait.
func (s *state) deliverUnblocked() {
	for _, name := range s.nodes.TakeUnblocked() {
		if service, isBlocked := s.blocked[name]; isBlocked && !s.nodes.IsBlocked(name) {
			delete(s.blocked, name)
			convert.Services.Apply(&s.change, name, service)
		}
	}
}

// deliverBlocked delivers all blocked Services.
func (s *state) deliverBlocked() {
	for name, service := range s.blocked {
		convert.Services.Apply(&s.change, name, service)
	}
	clear(s.blocked)
}

// switchSource switches the source of the other nodes.
func (s *state) switchSource(next *source) {
	s.forgetPeerObjects()
	var kinds []*convert.Kind
	for _, request := range next.requests {
		kinds = append(kinds, request.kind)
	}
	s.nodes.SwitchSource(kinds...)
}

// dropPeers drops the other nodes unless a Service needs them again. It reports whether it did.
func (s *state) dropPeers() bool {
	isDropped := s.nodes.DropPeers()
	if isDropped {
		s.forgetPeerObjects()
	}
	return isDropped
}

// forgetPeerObjects drops the objects of the previous source of other nodes. The nodes stay known.
func (s *state) forgetPeerObjects() {
	maps.DeleteFunc(s.objects, func(kind *convert.Kind, _ map[model.ObjectName]storedObject) bool { return nodes.IsPeerSource(kind) })
}
