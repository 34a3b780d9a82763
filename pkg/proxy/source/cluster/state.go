package cluster

import (
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/later"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/nodes"
)

// state decides what happens to each object that arrives: it is delivered, refused, or held back until the labels of
// other nodes, or measured demand, are known. It knows no API server and no clock, and is for one goroutine at a time.
type state struct {
	// now is the time, as the last caller gave it.
	now time.Time
	// objects are those that exist and are ours, or have problems.
	objects map[*convert.Kind]map[model.ObjectName]kept
	// leaving are those of them that now belong to another proxy, until they go.
	leaving later.Queue[convert.ObjectKey]

	// change is what was not delivered yet, except for nodes.
	change model.Change
	// problems are the problems of objects that are refused, or used without a label or annotation; judged are the
	// problems that were delivered last, for objects that have changed since.
	problems, judged map[convert.ObjectKey][]model.Finding

	// nodes is what is known about nodes, and held are the newest good versions of the Services that wait for nodes or for
	// demands.
	nodes *nodes.Directory
	held  map[model.ObjectName]*model.Service
	// demands says whether measured demand counts.
	demands demands
	// areMoved: proxies have other addresses than when somebody was told of them last.
	areMoved bool
}

// kept is what is kept of an object.
type kept struct {
	uid string
	// value is the newest good version; nil if there was none. It is delivered without a copy, so it must not change.
	value any
}

func newState(own string) *state {
	s := &state{
		objects:  map[*convert.Kind]map[model.ObjectName]kept{},
		problems: map[convert.ObjectKey][]model.Finding{},
		judged:   map[convert.ObjectKey][]model.Finding{},
		held:     map[model.ObjectName]*model.Service{},
	}
	s.nodes = nodes.New(own)
	return s
}

// put takes in a version of an object. A bad one leaves the last good one in force.
func (s *state) put(kind *convert.Kind, now *object) {
	key := convert.ObjectKey{Kind: kind, Name: now.name}
	s.judge(key, slices.Concat(now.refused, now.ignored))
	if now.isOthers && s.leave(key, now.uid) {
		return
	}
	s.leaving.Cancel(key)
	before := s.objects[kind][now.name].value
	isNew, inForce := len(now.refused) == 0 && !kind.IsSame(before, now.value), before
	if isNew {
		inForce = now.value
	}
	s.keep(key, kept{now.uid, inForce})
	if isNew {
		s.decide(key, now.value)
	}
}

// keep notes an object if it is ours to serve or has a problem: a cluster may have many more of the other objects.
func (s *state) keep(key convert.ObjectKey, object kept) {
	if object.value == nil && len(s.problems[key]) == 0 {
		delete(s.objects[key.Kind], key.Name)
		return
	}
	if s.objects[key.Kind] == nil {
		s.objects[key.Kind] = map[model.ObjectName]kept{}
	}
	s.objects[key.Kind][key.Name] = object
}

// remove takes in that an object is gone.
func (s *state) remove(kind *convert.Kind, name model.ObjectName) {
	key := convert.ObjectKey{Kind: kind, Name: name}
	s.judge(key, nil)
	s.leaving.Cancel(key)
	before := s.objects[kind][name].value
	delete(s.objects[kind], name)
	if before != nil {
		s.decide(key, nil)
	}
}

// replace takes in all objects of a kind.
func (s *state) replace(kind *convert.Kind, all []*object) { s.takeAll(kind, all, listed) }

// lack takes in that a resource does not exist or may not be listed: it then counts as one without objects.
func (s *state) lack(kind *convert.Kind) { s.takeAll(kind, nil, lacking) }

func (s *state) takeAll(kind *convert.Kind, all []*object, as availability) {
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
	s.nodes.Listed(kind, s.now)
	if kind == convert.ServiceDemands {
		s.demands.availability = as
		s.settleDemands()
	}
	s.serve()
}

// judge takes in the problems of an object.
func (s *state) judge(key convert.ObjectKey, problems []model.Finding) {
	before := s.problems[key]
	if slices.Equal(before, problems) {
		return
	}
	if _, isJudged := s.judged[key]; !isJudged {
		s.judged[key] = before
	}
	delete(s.problems, key)
	if len(problems) > 0 {
		s.problems[key] = problems
	}
}

// decide decides about a value that is new, or nil.
func (s *state) decide(key convert.ObjectKey, value any) {
	switch kind := key.Kind; {
	case nodes.Speaks(kind):
		s.nodes.Put(kind, key.Name, value, s.now)
		s.serve()
	case kind == convert.Services:
		service, _ := value.(*model.Service)
		s.decideService(key.Name, service)
	case kind == convert.ProxyAddresses:
		s.areMoved = true
	default:
		kind.Note(&s.change, key.Name, value)
	}
}
