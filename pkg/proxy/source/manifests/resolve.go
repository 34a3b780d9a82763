package manifests

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"time"

	discoveryv1 "k8s.io/api/discovery/v1"
	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// entry is the active version of an object, and its file.
type entry struct {
	file  string
	value any
}

// locatedVersion is a version of an object and its file.
type locatedVersion struct {
	file string
	*objectVersion
}

// resolve decides which version of each object is active, from the previously active versions and the files.
//
//   - A file whose version is active keeps the object while it has a version of it, or while that is unknown because
//     the file is not completely readable.
//   - It also keeps an object that moves to a file that is still being written.
//   - Otherwise the first valid version becomes active, by file name, then by position.
//   - While all versions are invalid, the last known good one stays active.
func resolve(before map[convert.ObjectKey]entry, files map[string]*file) (map[convert.ObjectKey]entry, []model.Finding) {
	versions, problems := collect(files)
	moving := incoming(files)
	after := make(map[convert.ObjectKey]entry, len(versions))
	for key, current := range before {
		if holdingFile := files[current.file]; moving[key] || holdingFile != nil && !holdingFile.isComplete() {
			after[key] = current
		}
	}
	keys := slices.SortedFunc(maps.Keys(versions), convert.ObjectKey.Compare)
	for _, key := range keys {
		incumbent, had := before[key]
		_, kept := after[key]
		winner, chosen := resolveDuplicates(versions[key], incumbent, had, kept)
		if chosen != nil {
			winner.value = chosen.value
		}
		if winner.file != "" {
			after[key] = winner
		}
		problems = append(problems, duplicates(key, versions[key], chosen, winner.file)...)
	}
	problems = append(problems, orphans(after, versions)...)
	return after, convert.SortProblems(problems)
}

// isComplete reports whether the read versions cover all objects in the file.
func (f *file) isComplete() bool { return f.failure == nil && f.contents.isComplete }

// incoming returns the objects in files that are not stable yet.
func incoming(files map[string]*file) map[convert.ObjectKey]bool {
	keys := map[convert.ObjectKey]bool{}
	for _, f := range files {
		if f.candidate == nil {
			continue
		}
		for _, version := range f.candidate.contents.objects {
			keys[version.key] = true
		}
	}
	return keys
}

// collect groups the versions in all files by object, in the order of the files, and collects their problems.
func collect(files map[string]*file) (map[convert.ObjectKey][]locatedVersion, []model.Finding) {
	versions := make(map[convert.ObjectKey][]locatedVersion)
	var problems []model.Finding
	for _, name := range slices.Sorted(maps.Keys(files)) {
		f := files[name]
		if f.failure != nil {
			problems = append(problems, unreadableProblem(name, f.failure))
		}
		problems = append(problems, f.contents.problems...)
		for i := range f.contents.objects {
			v := &f.contents.objects[i]
			problems = append(append(problems, v.problems...), v.ignored...)
			versions[v.key] = append(versions[v.key], locatedVersion{name, v})
		}
	}
	return versions, problems
}

// resolveDuplicates returns the entry that becomes active, and the version that it comes from: nil if it is the last
// known good one. The entry has no file if no version is active. had reports whether there is an incumbent, and kept
// whether it stays active anyway.
func resolveDuplicates(candidates []locatedVersion, incumbent entry, had, kept bool) (entry, *objectVersion) {
	var sameFile []locatedVersion
	for _, v := range candidates {
		if had && v.file == incumbent.file {
			sameFile = append(sameFile, v)
		}
	}
	if chosen := choose(sameFile, incumbent.value); chosen.objectVersion != nil {
		return incumbent, chosen.objectVersion
	}
	if len(sameFile) > 0 || kept {
		return incumbent, nil
	}
	chosen := choose(candidates, nil)
	if chosen.objectVersion == nil && had {
		// The object was moved to another file and is invalid there, so it was not deleted.
		return entry{file: candidates[0].file, value: incumbent.value}, nil
	}
	return entry{file: chosen.file}, chosen.objectVersion
}

// choose returns the first valid version. If there are several, one that equals the active version takes precedence:
// then the order in a file that defines an object twice does not matter.
func choose(candidates []locatedVersion, current any) locatedVersion {
	var first locatedVersion
	for _, v := range candidates {
		if !v.isValid() {
			continue
		}
		if len(candidates) > 1 && current != nil && reflect.DeepEqual(v.value, current) {
			return v
		}
		if first.objectVersion == nil {
			first = v
		}
	}
	return first
}

// duplicates returns a problem for each valid version of an object that is not the active one. An invalid version has
// problems of its own.
func duplicates(key convert.ObjectKey, candidates []locatedVersion, chosen *objectVersion, file string) []model.Finding {
	var problems []model.Finding
	for _, v := range candidates {
		if file == "" || v.objectVersion == chosen || !v.isValid() {
			continue
		}
		reason := fmt.Sprintf("also defined in %s, whose version is active", file)
		if v.file == file {
			reason = "defined twice in this file; the other version is active"
		}
		reason = field.Duplicate(nil, key.Name.Name).ErrorBody() + ": " + reason
		problems = append(problems, key.Problem(v.file, "metadata.name", reason))
	}
	return problems
}

// orphans returns a problem for each active slice whose Service does not exist.
func orphans(applied map[convert.ObjectKey]entry, versions map[convert.ObjectKey][]locatedVersion) []model.Finding {
	var problems []model.Finding
	for key, current := range applied {
		slice, isSlice := current.value.(*model.EndpointSlice)
		if !isSlice {
			continue
		}
		service := convert.ObjectKey{Kind: convert.Services, Name: slice.Service}
		_, exists := applied[service]
		if exists || len(versions[service]) > 0 {
			continue
		}
		path := field.NewPath("metadata", "labels").Key(discoveryv1.LabelServiceName)
		err := field.NotFound(path, service.Name.Name)
		reason := fmt.Sprintf("%s: there is no such Service in namespace %q", err.ErrorBody(), service.Name.Namespace)
		problems = append(problems, key.Problem(current.file, err.Field, reason))
	}
	return problems
}

// changeSince returns the change since a previous state: an object that is not ours to serve counts as deleted. The
// consequences for nodes come from the node store.
func (f *Folder) changeSince(before map[convert.ObjectKey]entry, now time.Time) model.Change {
	after, store := f.applied, f.nodes
	var change model.Change
	apply := func(key convert.ObjectKey, current any) {
		if key.Kind == convert.Nodes {
			node, _ := current.(*model.Node)
			store.UpdateFull(key.Name.Name, node, now)
			return
		}
		key.Kind.Apply(&change, key.Name, current)
	}
	for key, previous := range before {
		if _, stays := after[key]; !stays && previous.value != nil {
			apply(key, nil)
		}
	}
	for key, current := range after {
		if previous := before[key].value; !key.Kind.IsSame(previous, current.value) {
			apply(key, current.value)
		}
	}
	results := map[string]bool{}
	store.Expire(now)
	for node := range store.TakePendingChecks() {
		results[node] = false
	}
	store.ResolveChecks(results, now)
	store.TakeChanges(&change)
	return change
}
