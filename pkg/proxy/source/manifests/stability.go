package manifests

import (
	"crypto/sha256"
	"reflect"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// version is a version of a file that was read.
type version struct {
	sum      [sha256.Size]byte
	size     int // in bytes
	contents contents
	// missing are objects that came from the file and may still be in it, because a part of it cannot be read.
	missing []convert.ObjectKey
}

// isStable reports whether a version of a file replaces the previous one, given how long the file has been unchanged.
//
// A program may write a file slowly, and objects that it has not written yet were not deleted. A truncated text may
// well be valid up to its end. So a version that removes something counts only after the file was unchanged for
// stableAfter, regardless of what else is wrong or new in it. A version that removes nothing counts at once.
func isStable(before, candidate *version, unchanged time.Duration) bool {
	return unchanged >= stableAfter || !candidate.dropsObjects(before) && !candidate.mayBeTruncated(before)
}

// dropsObjects reports whether an object of the previous version is missing.
func (v *version) dropsObjects(before *version) bool { return len(v.droppedObjects(before)) > 0 }

// droppedObjects returns the objects of the previous version that are missing.
func (v *version) droppedObjects(before *version) []convert.ObjectKey {
	present := make(map[convert.ObjectKey]bool, len(v.contents.objects))
	for _, object := range v.contents.objects {
		present[object.key] = true
	}
	var dropped []convert.ObjectKey
	add := func(key convert.ObjectKey) {
		if !present[key] {
			present[key] = true
			dropped = append(dropped, key)
		}
	}
	for _, object := range before.contents.objects {
		add(object.key)
	}
	for _, key := range before.missing {
		add(key)
	}
	return dropped
}

// mayBeTruncated reports whether the end of the previous version may be missing: the text is shorter, and the last
// object differs. A slice that is truncated after three of ten endpoints is a valid object.
func (v *version) mayBeTruncated(before *version) bool {
	objects := v.contents.objects
	if v.size >= before.size || len(objects) == 0 {
		return false
	}
	last := objects[len(objects)-1]
	for _, previous := range before.contents.objects {
		if previous.key == last.key && last.isValid() && reflect.DeepEqual(previous.value, last.value) {
			return false
		}
	}
	return true
}
