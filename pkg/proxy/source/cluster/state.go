package cluster

import (
	"maps"
	"net/netip"
	"reflect"
	"slices"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/policy"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// state decides what becomes of each object that arrives: it is delivered, refused, or held back until the labels of other nodes
// are known. It knows no API server and no clock, only times that it is told, and is for one goroutine at a time.
type state struct {
	self string

	// change is what was not delivered yet.
	change model.Change
	// refused are the problems of the refused objects, and problems all of them, sorted, as they were delivered last. isNews: they
	// are not the same any more.
	refused  map[objectKey][]convert.Problem
	problems []convert.Problem
	isNews   bool

	// inForce are the node keys of the Services in force that have some, held the Services that wait for nodes. uses counts both.
	inForce map[model.ObjectName][]policy.Key
	held    map[model.ObjectName]heldService
	uses    keyUse

	own *model.Node // this node with all its labels; nil if there is no such object
	// told is this node as it was delivered last; nil if it was not, or is gone.
	told *model.Node
	// nodes are the other nodes in force, coming are those that will take over as soon as they are all known. Nil: there are none.
	nodes, coming *nodeSet

	// now is when that happens which the state is told. Whoever tells it sets it first; it never goes back.
	now time.Time
	// begun is when the last list of nodes was begun; zero: none was.
	begun time.Time
	// first is since when the first update waits for nodes; zero: it cannot wait yet, or was taken. isLate: it waits no longer, and
	// until it is taken no Service is held.
	first  time.Time
	isLate bool
}

// objectKey names an object among those of all kinds.
type objectKey struct {
	kind string
	name model.ObjectName
}

func newState(self string) *state {
	return &state{
		self:    self,
		refused: map[objectKey][]convert.Problem{},
		inForce: map[model.ObjectName][]policy.Key{},
		held:    map[model.ObjectName]heldService{},
		uses:    keyUse{counts: map[policy.Key]int{}},
	}
}

// take returns what is new since the last call, and whether anything is.
func (s *state) take() (convert.Update, bool) {
	if s.isNews {
		s.problems = slices.Concat(slices.Collect(maps.Values(s.refused))...)
		slices.SortFunc(s.problems, convert.Problem.Compare)
	}
	update, isNew := convert.Update{Change: s.change, Problems: s.problems}, s.hasNews()
	s.change, s.isNews = model.Change{}, false
	return update, isNew
}

// hasNews reports whether there is something to deliver.
func (s *state) hasNews() bool { return s.isNews || !s.change.IsEmpty() }

// judge takes in the problems of an object that exists, and reports whether this version is good. wasRefused: the one before was
// not, so that the one in force is older.
func (s *state) judge(kind string, name model.ObjectName, problems []convert.Problem) (isGood, wasRefused bool) {
	key := objectKey{kind, name}
	before, wasRefused := s.refused[key]
	if slices.Equal(before, problems) {
		return len(problems) == 0, wasRefused
	}
	if len(problems) == 0 {
		delete(s.refused, key)
	} else {
		s.refused[key] = problems
	}
	s.isNews = true
	return len(problems) == 0, wasRefused
}

// isNew reports whether a good version must be delivered: it differs from the one before, or that one was refused.
func isNew[T any](before, now *object[T], wasRefused bool, equal func(a, b T) bool) bool {
	if before == nil {
		var none T
		return wasRefused || !reflect.DeepEqual(now.value, none)
	}
	return wasRefused || !equal(before.value, now.value)
}

func (s *state) putSlice(before, now *object[*model.EndpointSlice]) {
	isGood, wasRefused := s.judge(convert.EndpointSliceKind, now.name, now.refused)
	if isGood && isNew(before, now, wasRefused, equalSlices) {
		s.noteSlice(now.name, now.value)
	}
}

// equalSlices compares what decides about traffic. When it was caused is no reason to look at a slice again.
func equalSlices(a, b *model.EndpointSlice) bool {
	if a == nil || b == nil {
		return a == b
	}
	later := *b
	later.TriggeredAt = a.TriggeredAt
	return reflect.DeepEqual(a, &later)
}

func (s *state) sliceGone(name model.ObjectName) {
	s.judge(convert.EndpointSliceKind, name, nil)
	s.noteSlice(name, nil)
}

func (s *state) noteSlice(name model.ObjectName, slice *model.EndpointSlice) {
	if s.change.Slices == nil {
		s.change.Slices = map[model.ObjectName]*model.EndpointSlice{}
	}
	s.change.Slices[name] = slice
}

func (s *state) putServiceCIDR(before, now *object[[]netip.Prefix]) {
	isGood, wasRefused := s.judge(convert.ServiceCIDRKind, now.name, now.refused)
	if isGood && isNew(before, now, wasRefused, slices.Equal) {
		s.noteServiceCIDR(now.name, now.value)
	}
}

func (s *state) serviceCIDRGone(name model.ObjectName) {
	s.judge(convert.ServiceCIDRKind, name, nil)
	s.noteServiceCIDR(name, nil)
}

func (s *state) noteServiceCIDR(name model.ObjectName, prefixes []netip.Prefix) {
	if s.change.ServiceCIDRs == nil {
		s.change.ServiceCIDRs = map[string][]netip.Prefix{}
	}
	s.change.ServiceCIDRs[name.Name] = prefixes
}
