package convert

import (
	"fmt"

	"k8s.io/apimachinery/pkg/util/validation/field"

	"github.com/vicinity-proxy/vicinity/pkg/printable"
)

// maxLeftOut bounds the sentences about one object. A slice may have 20,000 ports, and a few of them say enough.
const maxLeftOut = 20

// leftOut collects why parts of an object are left out while the rest of it is served.
type leftOut struct {
	errs field.ErrorList // the first of them
	more int             // the number of the others
}

// add takes in why one part is left out. No errors: it is not.
func (l *leftOut) add(errs field.ErrorList) {
	taken := min(len(errs), maxLeftOut-len(l.errs))
	l.errs = append(l.errs, errs[:taken]...)
	l.more += len(errs) - taken
}

// list returns a sentence for each part with its field, its value and the reason; beyond maxLeftOut only their number.
func (l *leftOut) list() []string {
	var sentences []string
	for _, err := range l.errs {
		sentences = append(sentences, printable.Short(err.Error()))
	}
	if l.more > 0 {
		sentences = append(sentences, fmt.Sprintf("and %d more", l.more))
	}
	return sentences
}
