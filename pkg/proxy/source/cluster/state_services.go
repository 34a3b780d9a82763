package cluster

import (
	"reflect"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// heldService is the latest version of a Service that is held back.
type heldService struct {
	*model.Service
	since time.Time // when the first version was held, of those that came since one was in force
}

func (s *state) putService(before, now *object[*model.Service]) {
	isGood, wasRefused := s.judge(convert.ServiceKind, now.name, now.refused)
	if !isGood || !isNew(before, now, wasRefused, func(a, b *model.Service) bool { return reflect.DeepEqual(a, b) }) {
		return
	}
	if now.value == nil {
		s.removeService(now.name)
	} else {
		s.admit(now.value)
	}
	s.followUse()
}

func (s *state) serviceGone(name model.ObjectName) {
	s.judge(convert.ServiceKind, name, nil)
	s.removeService(name)
	s.followUse()
}

// admit puts a Service in force, or holds it back while the labels that it names are not known of the other nodes: with unknown
// nodes a hard key would refuse all connections for a moment, and a soft one lead them far away. Its last version stays in force. If
// that one names the same unknown labels, because it has waited long enough, nothing is gained by waiting again.
func (s *state) admit(service *model.Service) {
	keys := nodeKeys(service)
	if s.isLate || s.knows(keys) || containsAll(s.inForce[service.Name], keys) {
		s.serve(service, keys)
	} else {
		s.hold(service, keys)
	}
}

// hold keeps a version back. Who edits a Service that waits does not make it wait longer.
func (s *state) hold(service *model.Service, keys []policy.Key) {
	since := s.now
	if before, isHeld := s.held[service.Name]; isHeld {
		since = before.since
		s.release(service.Name)
	}
	s.held[service.Name] = heldService{service, since}
	s.uses.add(keys)
}

// serve puts a version in force.
func (s *state) serve(service *model.Service, keys []policy.Key) {
	s.release(service.Name)
	s.enforce(service.Name, keys)
	s.noteService(service.Name, service)
}

// enforce takes in the node keys that a Service has from now on.
func (s *state) enforce(name model.ObjectName, keys []policy.Key) {
	s.uses.remove(s.inForce[name])
	delete(s.inForce, name)
	if len(keys) > 0 {
		s.inForce[name] = keys
		s.uses.add(keys)
	}
}

// release forgets the version of a Service that is held back, if there is one.
func (s *state) release(name model.ObjectName) {
	if held, isHeld := s.held[name]; isHeld {
		delete(s.held, name)
		s.uses.remove(nodeKeys(held.Service))
	}
}

// admitHeld puts the Services in force that need not wait any longer: their labels are known, or not waited for, or they have
// waited since a time that is over.
func (s *state) admitHeld(isOver func(since time.Time) bool) {
	for _, held := range s.held {
		if keys := nodeKeys(held.Service); s.isLate || isOver(held.since) || s.knows(keys) {
			s.serve(held.Service, keys)
		}
	}
}

func (s *state) removeService(name model.ObjectName) {
	s.release(name)
	s.enforce(name, nil)
	s.noteService(name, nil)
}

func (s *state) noteService(name model.ObjectName, service *model.Service) {
	if s.change.Services == nil {
		s.change.Services = map[model.ObjectName]*model.Service{}
	}
	s.change.Services[name] = service
}
