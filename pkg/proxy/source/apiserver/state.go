package apiserver

import (
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/deadline"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/nodes"
)

// state decides what happens to each object that arrives: it is delivered, rejected, or blocked until the labels of
// other nodes, or measured demand, are known. It uses neither an API server nor a clock. It is not safe for concurrent
// use.
type state struct {
	// now is the time that the last caller set.
	now time.Time
	// objects are the existing objects that are ours or have problems.
	objects map[*convert.Kind]map[model.ObjectName]storedObject
	// handoffs are the objects that now belong to another proxy, each with the end of its handoff.
	handoffs deadline.Queue[convert.ObjectKey]

	// change holds the changes that were not delivered yet, except those of nodes.
	change model.Change
	// problems are the problems of objects that are invalid, or used without a label or annotation. reported are the
	// problems that were delivered last, for objects that have changed since.
	problems, reported map[convert.ObjectKey][]model.Finding

	// nodes is the state of the nodes, and blocked are the newest valid versions of the Services that wait for nodes or
	// demand.
	nodes   *nodes.Store
	blocked map[model.ObjectName]*model.Service
	// demands determines whether measured demand counts.
	demands demandGate
	// addressesChanged is set if addresses of proxies have changed since OnProxyAddresses was last called.
	addressesChanged bool
}

// storedObject is the part of an object that is kept.
type storedObject struct {
	uid string
	// value is the newest valid version; nil if there was none. It is delivered without a copy, so it must not change.
	value any
}

func newState(self string) *state {
	s := &state{
		objects:  map[*convert.Kind]map[model.ObjectName]storedObject{},
		problems: map[convert.ObjectKey][]model.Finding{},
		reported: map[convert.ObjectKey][]model.Finding{},
		blocked:  map[model.ObjectName]*model.Service{},
	}
	s.nodes = nodes.NewStore(self)
	return s
}

// put processes a version of an object. If it is invalid, the last known good version stays active.
func (s *state) put(kind *convert.Kind, received *object) {
	key := convert.ObjectKey{Kind: kind, Name: received.name}
	s.recordProblems(key, slices.Concat(received.rejected, received.ignored))
	if received.isForOtherProxy && s.startHandoff(key, received.uid) {
		return
	}
	s.handoffs.Cancel(key)
	before := s.objects[kind][received.name].value
	isNew, active := len(received.rejected) == 0 && !kind.IsSame(before, received.value), before
	if isNew {
		active = received.value
	}
	s.store(key, storedObject{received.uid, active})
	if isNew {
		s.decide(key, received.value)
	}
}

// store keeps an object only if it is ours to serve or has a problem: a cluster may have many more other objects.
func (s *state) store(key convert.ObjectKey, object storedObject) {
	if object.value == nil && len(s.problems[key]) == 0 {
		delete(s.objects[key.Kind], key.Name)
		return
	}
	if s.objects[key.Kind] == nil {
		s.objects[key.Kind] = map[model.ObjectName]storedObject{}
	}
	s.objects[key.Kind][key.Name] = object
}

// remove processes the deletion of an object.
func (s *state) remove(kind *convert.Kind, name model.ObjectName) {
	key := convert.ObjectKey{Kind: kind, Name: name}
	s.recordProblems(key, nil)
	s.handoffs.Cancel(key)
	before := s.objects[kind][name].value
	delete(s.objects[kind], name)
	if before != nil {
		s.decide(key, nil)
	}
}

// replace processes a list of all objects of a kind.
func (s *state) replace(kind *convert.Kind, all []*object) { s.replaceAll(kind, all, listed) }

// markUnavailable records that a resource does not exist or may not be listed. It then counts as empty.
func (s *state) markUnavailable(kind *convert.Kind) { s.replaceAll(kind, nil, unavailable) }

func (s *state) replaceAll(kind *convert.Kind, all []*object, listState availability) {
	exists := make(map[model.ObjectName]bool, len(all))
	for _, object := range all {
		exists[object.name] = true
		s.put(kind, object)
	}
	for name := range s.objects[kind] {
		if !exists[name] {
			s.remove(kind, name)
		}
	}
	s.nodes.OnListed(kind, s.now)
	if kind == convert.ServiceDemands {
		s.demands.availability = listState
		s.resolveDemandState()
	}
	s.deliverUnblocked()
}

// recordProblems records the problems of an object.
func (s *state) recordProblems(key convert.ObjectKey, problems []model.Finding) {
	before := s.problems[key]
	if slices.Equal(before, problems) {
		return
	}
	if _, isRecorded := s.reported[key]; !isRecorded {
		s.reported[key] = before
	}
	delete(s.problems, key)
	if len(problems) > 0 {
		s.problems[key] = problems
	}
}

// decide processes a new value of an object; nil means that it was deleted.
func (s *state) decide(key convert.ObjectKey, value any) {
	switch kind := key.Kind; {
	case nodes.DescribesNodes(kind):
		s.nodes.Update(kind, key.Name, value, s.now)
		s.deliverUnblocked()
	case kind == convert.Services:
		service, _ := value.(*model.Service)
		s.decideService(key.Name, service)
	case kind == convert.ProxyAddresses:
		s.addressesChanged = true
	default:
		kind.Apply(&s.change, key.Name, value)
	}
}
