package cluster

import (
	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// nodeKeys returns the labels of other nodes that decide about a Service, which may be nil.
func nodeKeys(service *model.Service) []policy.Key {
	if service == nil {
		return nil
	}
	return service.Topology.NodeKeys()
}

// decideService delivers a Service, or holds it back while the labels that it names are not known of the other nodes:
// with unknown nodes a hard key would refuse all connections for a moment, and a soft one lead them far away. Its last
// version stays in force.
func (s *state) decideService(name model.ObjectName, service *model.Service) {
	delete(s.headless, name)
	if service != nil && service.IsHeadless {
		s.headless[name] = true
	}
	keys := nodeKeys(service)
	s.use(name, keys)
	if s.awaits(keys) {
		s.held[name] = service
		s.beginKeyWait(keys)
		return
	}
	delete(s.held, name)
	convert.Services.Note(&s.change, name, service)
}

// serveHeld delivers what was held back, and returns how many Services that are.
func (s *state) serveHeld() int {
	count := len(s.held)
	for name, service := range s.held {
		convert.Services.Note(&s.change, name, service)
	}
	clear(s.held)
	return count
}

// use takes in the node keys that a Service names from now on.
func (s *state) use(name model.ObjectName, keys []policy.Key) {
	before := s.keys[name]
	delete(s.keys, name)
	if len(keys) > 0 {
		s.keys[name] = keys
	}
	isMore := false
	for _, key := range keys {
		s.uses[key]++
		isMore = isMore || s.uses[key] == 1
	}
	for _, key := range before {
		if s.uses[key]--; s.uses[key] == 0 {
			delete(s.uses, key)
			delete(s.topology.inVain, key)
		}
	}
	if isMore {
		s.decideNodes()
	}
}
