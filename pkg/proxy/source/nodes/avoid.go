package nodes

import (
	"iter"
	"net/netip"
	"reflect"
	"slices"
	"time"

	corev1 "k8s.io/api/core/v1"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/later"
)

// avoided is what is held against nodes.
type avoided struct {
	// against is what is in force, by reason; said are the labels of the Node that say it, nil once they no longer do.
	against map[model.Against]*model.Avoid
	said    map[model.Against]map[string]string
	// asked are the nodes whose existence must be checked, by the label with their hostname; isAsked: they were handed
	// over.
	asked map[string]*question
	// gone are the nodes that vanished while they were avoided.
	gone map[string]departed
	// endpoints yields all EndpointSlices.
	endpoints iter.Seq[*model.EndpointSlice]

	later later.Queue[matter]
	news  map[model.Against]*model.Avoid // what was not handed over yet
}

// departed is a node that vanished: its former label for the hostname, and the usable endpoints that are listed there.
type departed struct {
	hostname string
	left     map[endpoint]listing
}

// question is whether a node exists.
type question struct {
	hostname string
	isAsked  bool
}

// endpoint is an endpoint of a Service. It may move from one slice to another.
type endpoint struct {
	node    string
	service model.ObjectName
	addr    netip.Addr
}

// listing is which slices list an endpoint, and as what: mostly one does.
type listing []entry

type entry struct {
	slice model.ObjectName
	phase model.Phase
}

// best returns the earliest phase in which any slice has the endpoint.
func (l listing) best() model.Phase {
	best := model.PhaseNever
	for _, entry := range l {
		best = min(best, entry.phase)
	}
	return best
}

// with and without return the listing with what a slice says, and without it.
func (l listing) with(slice model.ObjectName, phase model.Phase) listing {
	return append(l.without(slice), entry{slice, phase})
}

func (l listing) without(slice model.ObjectName) listing {
	return slices.DeleteFunc(slices.Clone(l), func(e entry) bool { return e.slice == slice })
}

func newAvoided(endpoints iter.Seq[*model.EndpointSlice]) avoided {
	return avoided{
		against: map[model.Against]*model.Avoid{}, said: map[model.Against]map[string]string{},
		asked: map[string]*question{}, gone: map[string]departed{},
		endpoints: endpoints,
	}
}

// hold takes in what a Node says about itself for one reason; nil: it says nothing any more, or is gone.
func (a *avoided) hold(from *provider, name string, node *model.Node, now time.Time) {
	var avoid *model.Avoid
	if node != nil {
		if avoid = from.why.Read(node.Labels); avoid != nil && avoid.IsOver(now) {
			avoid = nil
		}
	}
	against := model.Against{Node: name, Why: from.why}
	labels, isSaid := a.said[against]
	delete(a.said, against)
	switch {
	case avoid != nil:
		a.said[against] = node.Labels
		a.settle(name)
		a.setAvoid(against, avoid)
	case node != nil:
		a.settle(name)
	case isSaid && a.against[against] != nil && a.asked[name] == nil:
		a.asked[name] = &question{hostname: labels[corev1.LabelHostname]}
		a.later.At(matter{giveUpAsk, name}, now.Add(answerPatience))
	}
}

// setAvoid puts in force what is held against a node for one reason.
func (a *avoided) setAvoid(against model.Against, avoid *model.Avoid) {
	before := a.against[against]
	end := matter{endAvoid, against.Node}
	if avoid == nil {
		delete(a.against, against)
	} else {
		a.against[against] = avoid
	}
	a.later.Cancel(end)
	if at, some := a.nextEnd(against.Node); some {
		a.later.At(end, at)
	}
	if reflect.DeepEqual(before, avoid) {
		return
	}
	if a.news == nil {
		a.news = map[model.Against]*model.Avoid{}
	}
	a.news[against] = avoid
}

// nextEnd returns when something that a Node says against itself ends next.
func (a *avoided) nextEnd(node string) (at time.Time, some bool) {
	for why := range model.Why(model.Whys) {
		against := model.Against{Node: node, Why: why}
		if avoid := a.against[against]; avoid != nil && avoid.Until != nil && a.said[against] != nil && (!some || avoid.Until.Before(at)) {
			at, some = *avoid.Until, true
		}
	}
	return at, some
}

// end lifts those reasons against a node that have ended by now.
func (a *avoided) end(node string, now time.Time) {
	for why := range model.Why(model.Whys) {
		against := model.Against{Node: node, Why: why}
		if avoid := a.against[against]; avoid != nil && a.said[against] != nil && avoid.IsOver(now) {
			a.setAvoid(against, nil)
		}
	}
}

// expire lifts what has ended, and what got no answer in time.
func (a *avoided) expire(now time.Time) {
	for _, due := range a.later.Due(now) {
		switch due.what {
		case endAvoid:
			a.end(due.name, now)
		case askAgain:
			a.asked[due.name] = &question{hostname: a.gone[due.name].hostname}
			a.later.At(due, now.Add(askAgainAfter))
		default:
			a.settle(due.name)
		}
	}
}

// Questions returns the nodes whose existence must be known, each by the value of its label for the
// hostname, since the last call.
func (a *avoided) Questions() map[string]string {
	var questions map[string]string
	for node, question := range a.asked {
		if question.isAsked {
			continue
		}
		if questions == nil {
			questions = map[string]string{}
		}
		question.isAsked, questions[node] = true, question.hostname
	}
	return questions
}

// HasQuestions reports whether there are any.
func (a *avoided) HasQuestions() bool {
	for _, question := range a.asked {
		if !question.isAsked {
			return true
		}
	}
	return false
}

// Answer takes in which of the nodes that were asked for exist, and which are gone. Gone ones are asked for again from
// time to time: a node that comes back without the label is not reported to us.
func (a *avoided) Answer(areThere map[string]bool, now time.Time) {
	hostnames, isNew := map[string]string{}, map[string]bool{}
	for node, isThere := range areThere {
		question := a.asked[node]
		_, wasGone := a.gone[node]
		switch {
		case question == nil: // it says it again
		case isThere:
			a.settle(node)
		case wasGone:
			delete(a.asked, node)
		default:
			hostnames[node], isNew[node] = question.hostname, true
		}
	}
	for node, left := range a.listed(isNew) {
		if len(left) == 0 {
			a.settle(node)
			continue
		}
		a.forget(node)
		a.gone[node] = departed{hostnames[node], left}
		a.later.At(matter{askAgain, node}, now.Add(askAgainAfter))
	}
}

// settle lifts what is held against an existing node but not said by the node itself any more.
func (a *avoided) settle(node string) {
	a.forget(node)
	for why := range model.Why(model.Whys) {
		if against := (model.Against{Node: node, Why: why}); a.said[against] == nil {
			a.setAvoid(against, nil)
		}
	}
}

// forget forgets that a node was asked for, or is gone.
func (a *avoided) forget(node string) {
	delete(a.asked, node)
	delete(a.gone, node)
	a.later.Cancel(matter{giveUpAsk, node})
	a.later.Cancel(matter{askAgain, node})
}

// listed returns the usable endpoints that all slices list on some nodes, by node.
func (a *avoided) listed(nodes map[string]bool) map[string]map[endpoint]listing {
	listed := make(map[string]map[endpoint]listing, len(nodes))
	for node := range nodes {
		listed[node] = map[endpoint]listing{}
	}
	if len(nodes) == 0 {
		return listed
	}
	for slice := range a.endpoints {
		for one, phase := range usable(slice, func(node string) bool { return nodes[node] }) {
			listed[one.node][one] = append(listed[one.node][one], entry{slice.Name, phase})
		}
	}
	return listed
}

// usable returns the usable endpoints of a slice on some nodes. The slice may be nil.
func usable(slice *model.EndpointSlice, isOn func(node string) bool) map[endpoint]model.Phase {
	var found map[endpoint]model.Phase
	if slice == nil {
		return nil
	}
	for i := range slice.Endpoints {
		entry := &slice.Endpoints[i]
		if entry.Phase() == model.PhaseNever || !isOn(entry.Node) {
			continue
		}
		if found == nil {
			found = map[endpoint]model.Phase{}
		}
		one, phase := endpoint{entry.Node, slice.Service, entry.Addr}, entry.Phase()
		if was, isTwice := found[one]; isTwice {
			phase = min(phase, was)
		}
		found[one] = phase
	}
	return found
}

// NoteSlice takes in that an EndpointSlice changed, or is gone. It costs nothing as long as no avoided node is gone.
func (a *avoided) NoteSlice(before, now *model.EndpointSlice) {
	if len(a.gone) == 0 {
		return
	}
	isGone := func(node string) bool { return a.gone[node].left != nil }
	had, has := usable(before, isGone), usable(now, isGone)
	alive := map[string]bool{}
	for one, phase := range has {
		left := a.gone[one.node].left
		if phase < left[one].best() {
			alive[one.node] = true
		}
		left[one] = left[one].with(now.Name, phase)
	}
	for one := range had {
		if _, stays := has[one]; stays {
			continue
		}
		left := a.gone[one.node].left
		if left[one] = left[one].without(before.Name); len(left[one]) > 0 {
			continue
		}
		if delete(left, one); len(left) == 0 {
			alive[one.node] = true // or forgotten by all
		}
	}
	for node := range alive {
		a.settle(node)
	}
}
