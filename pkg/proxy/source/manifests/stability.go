package manifests

import (
	"crypto/sha256"
	"reflect"
	"time"

	"github.com/vicinity-proxy/vicinity/pkg/proxy/source/convert"
)

// version is what a file held when it was read.
type version struct {
	sum      [sha256.Size]byte
	size     int // in bytes
	contents contents
	// missing are objects that came from the file and may still be in it, because a part of it cannot be read.
	missing []convert.ObjectKey
}

// isStable reports whether a version of a file replaces the one before, once the file has not changed for
// some time.
//
// A program may write a file slowly, and what it has not written yet has not been deleted. A text that ends at a random
// place may well be valid up to there. So a version that takes something away counts only after the file was left alone
// for settleTime, whatever else is wrong or new in it. One that takes nothing away counts at once.
func isStable(before, now *version, alone time.Duration) bool {
	return alone >= stableAfter || !now.dropsObjects(before) && !now.mayBeTruncated(before)
}

// dropsObjects reports whether an object of the version before is not there now.
func (v *version) dropsObjects(before *version) bool { return len(v.droppedObjects(before)) > 0 }

// droppedObjects returns the objects of the version before that are not there now.
func (v *version) droppedObjects(before *version) []convert.ObjectKey {
	there := make(map[convert.ObjectKey]bool, len(v.contents.claims))
	for _, claim := range v.contents.claims {
		there[claim.key] = true
	}
	var lost []convert.ObjectKey
	add := func(key convert.ObjectKey) {
		if !there[key] {
			there[key] = true
			lost = append(lost, key)
		}
	}
	for _, claim := range before.contents.claims {
		add(claim.key)
	}
	for _, key := range before.missing {
		add(key)
	}
	return lost
}

// mayBeTruncated reports whether the end of the version before may be missing: the text is shorter, and the last object
// differs. A slice that is cut off after three of ten endpoints is a valid object.
func (v *version) mayBeTruncated(before *version) bool {
	claims := v.contents.claims
	if v.size >= before.size || len(claims) == 0 {
		return false
	}
	last := claims[len(claims)-1]
	for _, was := range before.contents.claims {
		if was.key == last.key && last.isValid() && reflect.DeepEqual(was.value, last.value) {
			return false
		}
	}
	return true
}
