package nodes

import (
	"reflect"
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
	// asked are the nodes whose existence must be checked, each by the value of its label for the hostname, until they are
	// handed over. As long as there is no answer something is due: lift.
	asked map[string]string

	later *later.Queue[matter]           // the directory's
	news  map[model.Against]*model.Avoid // what was not handed over yet
}

func newAvoided(later *later.Queue[matter]) avoided {
	return avoided{
		against: map[model.Against]*model.Avoid{}, said: map[model.Against]map[string]string{}, asked: map[string]string{}, later: later,
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
	case isSaid && a.against[against] != nil && !a.later.Has(matter{lift, name}):
		a.asked[name] = labels[corev1.LabelHostname]
		a.later.At(matter{lift, name}, now.Add(answerPatience))
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

// Questions returns the nodes whose existence must be known, each by the value of its label for the
// hostname, since the last call.
func (a *avoided) Questions() map[string]string {
	questions := a.asked
	a.asked = map[string]string{}
	return questions
}

// HasQuestions reports whether there are any.
func (a *avoided) HasQuestions() bool { return len(a.asked) > 0 }

// Answer takes in which of the nodes that were asked for exist, and which are gone. What was held against those stays for
// a while.
func (a *avoided) Answer(areThere map[string]bool, now time.Time) {
	for node, isThere := range areThere {
		switch {
		case !a.later.Has(matter{lift, node}): // the label is back, or there was no answer in time
		case isThere:
			a.settle(node)
		default:
			a.forget(node)
			a.later.At(matter{lift, node}, now.Add(goneFor))
		}
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
	a.later.Cancel(matter{lift, node})
}
