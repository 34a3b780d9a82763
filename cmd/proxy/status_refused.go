package main

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// refusedObject is an object that cannot be right, or a file that cannot be read.
//
// Its JSON names are an interface: scripts read them.
type refusedObject struct {
	Object  string `json:"object"` // "Service shop/web"; the name of a file
	Problem string `json:"problem"`
	// Said: the proxy refuses it, too. InForce: its last good version is in force there. Of a file: that of an object that
	// the file had.
	Said    bool `json:"said"`
	InForce bool `json:"inForce"`
}

// sentence says it to a person.
func (r *refusedObject) sentence() string {
	switch {
	case !r.Said:
		return r.Problem + "; the proxy does not say that it refuses it"
	case !r.InForce:
		return r.Problem + "; nothing of it is in force"
	}
	return r.Problem + "; the last good version is in force, as it should be"
}

// printRefused writes a line for each refused object, the first ones.
func (n *nodeStatus) printRefused(line func(label, format string, args ...any)) {
	label := "refused"
	for i := range n.Refused {
		if i == shownDifferences {
			line("", "and %d more; -o json has all", len(n.Refused)-i)
			break
		}
		line(label, "%s", n.Refused[i].sentence())
		label = ""
	}
}

// askLastGood asks the proxy for what it refuses, and what is in force of it. A proxy of a version that has no such page, or
// another one, says nothing.
func askLastGood(ctx context.Context, address string) ([]convert.Refusal, error) {
	page, err := ask(ctx, address, "/lastgood")
	switch {
	case errors.Is(err, errNoPage):
		return nil, nil
	case err != nil:
		return nil, fmt.Errorf("ask the proxy at %s what is in force of refused objects: %w", address, err)
	}
	return readLastGood(page), nil
}

// readLastGood reads the page; none if another program, or another version, wrote it.
func readLastGood(page []byte) []convert.Refusal {
	var refusals []convert.Refusal
	if json.Unmarshal(page, &refusals) != nil {
		return nil
	}
	return refusals
}

// refusedObjects compares what this command refuses with what the proxy says of it.
func refusedObjects(found []model.Finding, said []convert.Refusal) []refusedObject {
	isSaid, filesInForce := map[model.Subject]bool{}, map[string]bool{}
	for i := range said {
		isSaid[said[i].Subject()] = true
		filesInForce[said[i].File] = filesInForce[said[i].File] || said[i].InForce != nil
	}
	inForce := convert.LastGood(said)
	objects := []refusedObject{}
	for i := range found {
		problem := &found[i]
		if !problem.IsRefusal() {
			continue
		}
		subject := problem.Subject()
		_, isInForce := inForce[subject]
		objects = append(objects, refusedObject{
			Object: cmp.Or(problem.Object(), problem.File), Problem: problem.String(),
			Said: isSaid[subject], InForce: isInForce || problem.Kind == "" && filesInForce[problem.File],
		})
	}
	return objects
}

// told reports whether the proxy refuses all of it, too, and whether something of each is in force.
func told(refused []refusedObject) (isSaid, isInForce bool) {
	isSaid, isInForce = true, true
	for _, one := range refused {
		isSaid, isInForce = isSaid && one.Said, isInForce && one.InForce
	}
	return isSaid, isInForce
}
