package daemon

import (
	"cmp"
	"log/slog"
	"maps"
	"slices"
	"sync"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// problems are what is left out or ignored now, and how many objects are refused. A page reads them while the sources change them. What a
// change of one of them costs does not depend on how many there are.
type problems struct {
	mutex    sync.Mutex
	now      map[convert.Problem]bool
	byObject map[convert.Problem]int // why an object is refused: how many reasons it has, by what all of them name
	byKind   map[string]int          // objects. What could not be read as an object is of kind File.
}

func newProblems() *problems {
	return &problems{now: map[convert.Problem]bool{}, byObject: map[convert.Problem]int{}, byKind: map[string]int{}}
}

// objectOf returns what all problems of an object have in common.
func objectOf(problem convert.Problem) convert.Problem {
	problem.Field, problem.Reason = "", ""
	return problem
}

func kindOf(problem convert.Problem) string { return cmp.Or(problem.Kind, "File") }

func (p *problems) add(problem convert.Problem) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if p.now[problem] {
		return
	}
	p.now[problem] = true
	if problem.Ignored {
		return // the object is in force
	}
	object := objectOf(problem)
	if p.byObject[object]++; p.byObject[object] == 1 {
		p.byKind[kindOf(problem)]++
	}
}

func (p *problems) remove(problem convert.Problem) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	if !p.now[problem] {
		return
	}
	delete(p.now, problem)
	if problem.Ignored {
		return
	}
	object := objectOf(problem)
	if p.byObject[object]--; p.byObject[object] > 0 {
		return
	}
	delete(p.byObject, object)
	if p.byKind[kindOf(problem)]--; p.byKind[kindOf(problem)] == 0 {
		delete(p.byKind, kindOf(problem))
	}
}

// counts returns how many objects are refused, in all and of each kind.
func (p *problems) counts() (total int, byKind map[string]int) {
	p.mutex.Lock()
	defer p.mutex.Unlock()
	return len(p.byObject), maps.Clone(p.byKind)
}

// list returns all problems, a sentence each, in the order in which they are read.
func (p *problems) list() []string {
	p.mutex.Lock()
	now := slices.Collect(maps.Keys(p.now))
	p.mutex.Unlock()
	slices.SortFunc(now, convert.Problem.Compare)
	sentences := make([]string, len(now)) // [] rather than null
	for i, problem := range now {
		sentences[i] = problem.String()
	}
	return sentences
}

// about is an object of which something is said.
type about struct {
	kind string // as package convert names it
	name model.ObjectName
	file string // of what could not be read as an object
}

// Whoever may write an object can make the proxies of all nodes log something about it as often as he changes it.
const (
	linesPerObject = 32
	logPeriod      = time.Minute
)

// logBudget bounds what is logged about each object.
type logBudget struct {
	began time.Time
	lines map[about]int
}

// allows reports whether one more line about an object may be logged now. It logs itself that the rest is left out.
func (b *logBudget) allows(log *slog.Logger, object about) bool {
	if now := time.Now(); b.lines == nil || now.Sub(b.began) >= logPeriod {
		b.began, b.lines = now, map[about]int{}
	}
	b.lines[object]++
	if b.lines[object] == linesPerObject+1 {
		log.Warn("the log has enough of an object; more about it is left out for a minute",
			"kind", object.kind, "object", cmp.Or(object.file, object.name.String()))
	}
	return b.lines[object] <= linesPerObject
}
