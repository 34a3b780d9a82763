package cluster

import (
	"slices"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// state decides what becomes of each object that arrives: it is delivered, refused, or held back until the labels of
// other nodes are known. It knows no API server and no clock, and is for one goroutine at a time.
type state struct {
	// objects are those that exist and are ours, or have problems.
	objects map[*convert.Kind]map[model.ObjectName]kept
	// leaving are those of them that are another proxy's now, with the departure that ends them; departed is that of the
	// change that is being taken in.
	leaving  map[convert.ObjectKey]*departure
	departed *departure

	// change is what was not delivered yet.
	change model.Change
	// problems are those of the objects that are refused, or count without a label or annotation, and judged those that
	// were delivered last of the objects of which they are others now.
	problems, judged map[convert.ObjectKey][]convert.Problem

	// keys are those of nodeKeys that a Service names, in its newest good version, uses how many Services name each, and
	// held those versions that wait for nodes.
	keys map[model.ObjectName][]policy.Key
	uses map[policy.Key]int
	held map[model.ObjectName]*model.Service

	// headless are the headless Services that are ours.
	headless map[model.ObjectName]bool

	// nodes are the nodes as they were delivered: with all labels, or those in use.
	nodes     map[string]*model.Node
	allLabels bool
	// own is the name of this node, and topology what slices say of the others.
	own      string
	topology topology
	// from are the kinds from which the other nodes are known, as soon as none of their lists is missing any more.
	from, missing []*convert.Kind
	// knowsOthers: all other nodes are listed. isOverdue: no Service waits for that any more.
	knowsOthers, isOverdue bool
}

// kept is what is kept of an object.
type kept struct {
	uid string
	// value is that of the newest good version; nil if there was none. It is delivered as it is, so it must not change.
	value any
}

func newState(own string) *state {
	return &state{
		objects:  map[*convert.Kind]map[model.ObjectName]kept{},
		leaving:  map[convert.ObjectKey]*departure{},
		problems: map[convert.ObjectKey][]convert.Problem{},
		judged:   map[convert.ObjectKey][]convert.Problem{},
		keys:     map[model.ObjectName][]policy.Key{},
		uses:     map[policy.Key]int{},
		held:     map[model.ObjectName]*model.Service{},

		headless: map[model.ObjectName]bool{},
		nodes:    map[string]*model.Node{},
		own:      own,
		topology: newTopology(),
	}
}

// take returns what is new since the last call, and whether anything is.
func (s *state) take() (convert.Update, bool) {
	var before, after []convert.Problem
	for key, problems := range s.judged {
		before, after = append(before, problems...), append(after, s.problems[key]...)
	}
	update := convert.NewUpdate(s.change, before, after)
	s.change = model.Change{}
	clear(s.judged)
	return update, !update.IsEmpty()
}

// mayHaveNews reports whether there may be something to deliver: what was refused may have been put right meanwhile.
func (s *state) mayHaveNews() bool { return len(s.judged) > 0 || !s.change.IsEmpty() }

// put takes in a version of an object. A bad one leaves the last good one in force.
func (s *state) put(kind *convert.Kind, now *object) {
	key := convert.ObjectKey{Kind: kind, Name: now.name}
	s.judge(key, slices.Concat(now.refused, now.ignored))
	if now.isOthers && s.leave(key, now.uid) {
		return
	}
	delete(s.leaving, key)
	last := s.objects[kind][now.name].value
	isNew := len(now.refused) == 0 && !kind.IsSame(last, now.value)
	if isNew {
		last = now.value
	}
	s.keep(key, kept{now.uid, last})
	if isNew {
		s.decide(kind, now.name, now.value)
	}
}

// keep notes an object, unless it is not ours to serve and has no problem: a cluster may have many more of those.
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
	delete(s.leaving, key)
	last := s.objects[kind][name].value
	delete(s.objects[kind], name)
	if last != nil {
		s.decide(kind, name, nil)
	}
}

// replace takes in all objects of a kind.
func (s *state) replace(kind *convert.Kind, all []*object) {
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
	s.list(kind)
}

// judge takes in the problems of an object.
func (s *state) judge(key convert.ObjectKey, problems []convert.Problem) {
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

// refusals returns the objects that are refused, with their last good versions.
func (s *state) refusals() []convert.Refusal {
	var refusals []convert.Refusal
	for key, problems := range s.problems {
		if slices.ContainsFunc(problems, convert.Problem.IsRefusal) {
			refusals = append(refusals, convert.Refusal{Kind: key.Kind.Name, Name: key.Name, InForce: s.objects[key.Kind][key.Name].value})
		}
	}
	return refusals
}

// decide decides about a value that is new, or nil.
func (s *state) decide(kind *convert.Kind, name model.ObjectName, value any) {
	if slices.Contains(s.missing, kind) && kind != convert.OtherNodes {
		return // it is looked at when all lists are there
	}
	switch kind {
	case convert.Services:
		service, _ := value.(*model.Service)
		s.decideService(name, service)
	case convert.Nodes, convert.OtherNodes:
		node, _ := value.(*model.Node)
		s.decideNode(kind, name, node)
	case convert.TopologySlices, convert.ProxySlices:
		slice, _ := value.(*model.TopologySlice)
		s.decideTopologySlice(name.Name, slice)
	case convert.NodesWithDemand, convert.ControlPlaneNodes:
		if s.topology.node(name.Name) != nil {
			s.describe(name.Name, false)
		}
	case convert.EndpointSlices, convert.HeadlessSlices:
		s.decideSlice(kind, name, value)
	default:
		kind.Note(&s.change, name, value)
	}
}
