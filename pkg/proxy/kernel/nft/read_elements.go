//go:build linux

package nft

import (
	"context"
	"errors"
	"fmt"
	"time"

	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

const (
	// setCount is NFTA_SET_COUNT, the number of elements that the kernel sends along with a set (6.16 and newer).
	setCount = 20
	// readAttempts is the maximum number of attempts to read something that keeps changing.
	readAttempts = 6
	// readPause is the first pause between attempts, long enough for a table that is growing to finish.
	readPause = 5 * time.Millisecond
)

// retry repeats read, a limited number of times, while the data keeps changing.
func retry[T any](read func() (T, error)) (value T, err error) {
	pause := readPause
	for range readAttempts {
		if value, err = read(); !errors.Is(err, errInterrupted) {
			return value, err
		}
		time.Sleep(pause)
		pause *= 2
	}
	return value, err
}

// Elements returns the elements of a set, in no particular order. It is meant for small sets: the kernel's time for a
// dump grows with the square of their number.
//
// Elements that packets add or that expire while the set is being read may or may not be among them.
func (r *Reader) Elements(ctx context.Context, family model.Family, set ruleset.Set) ([]ruleset.Element, error) {
	elements, err := retry(func() ([]ruleset.Element, error) { return r.elements(ctx, family, set) })
	if err != nil {
		err = fmt.Errorf("read %s: %w", setText(tableText(family), set), err)
	}
	return elements, err
}

// elements reads a set once. The kernel does not report that a dump is inconsistent, and some are even without a
// writer, while a hash table is growing: elements are then missing or duplicate. So the number must match the kernel's
// count. Without a count, nothing at all may have changed meanwhile, in any table. A set that packets fill is different
// a moment later anyway.
func (r *Reader) elements(ctx context.Context, family model.Family, set ruleset.Set) ([]ruleset.Element, error) {
	before, err := r.generation(ctx)
	if err != nil {
		return nil, err
	}
	elements, err := r.dump(ctx, family, set)
	if err != nil {
		return nil, err
	}
	count, err := r.count(ctx, family, set)
	if err != nil {
		return nil, err
	}
	after, err := r.generation(ctx)
	if err != nil {
		return nil, err
	}
	isConsistent := set.Dynamic || count == len(elements) || count < 0 && after == before
	if !isConsistent {
		return elements, errInterrupted
	}
	return elements, nil
}

func (r *Reader) dump(ctx context.Context, family model.Family, set ruleset.Set) ([]ruleset.Element, error) {
	var elements []ruleset.Element
	seen := map[ruleset.Element]bool{}
	err := r.each(ctx, family, ruleset.TableName, set, func(element ruleset.Element, _ []byte) {
		if !seen[element] {
			seen[element] = true
			elements = append(elements, element)
		}
	})
	return elements, err
}

// each calls found with every element of a set in a table, and with the attributes that it was read from.
func (r *Reader) each(
	ctx context.Context, family model.Family, table string, set ruleset.Set, found func(element ruleset.Element, attributes []byte),
) error {
	return r.query(ctx, func(m *messages) {
		m.beginNFT(unix.NFT_MSG_GETSETELEM, unix.NLM_F_DUMP, nfproto(family))
		m.text(unix.NFTA_SET_ELEM_LIST_TABLE, table)
		m.text(unix.NFTA_SET_ELEM_LIST_SET, set.Name)
		m.end()
	}, func(m message) error {
		_, body := m.family()
		for _, b := range attributes(attribute(body, unix.NFTA_SET_ELEM_LIST_ELEMENTS)) {
			element, err := parseElement(b, family, set)
			if err != nil {
				return err
			}
			found(element, b)
		}
		return nil
	})
}

// count returns the kernel's count of a set's elements, and a negative number if it has none.
func (r *Reader) count(ctx context.Context, family model.Family, set ruleset.Set) (count int, err error) {
	count = -1
	err = r.query(ctx, func(m *messages) {
		m.beginNFT(unix.NFT_MSG_GETSET, unix.NLM_F_ACK, nfproto(family))
		m.text(unix.NFTA_SET_TABLE, ruleset.TableName)
		m.text(unix.NFTA_SET_NAME, set.Name)
		m.end()
	}, func(m message) error {
		_, body := m.family()
		if number, ok := numberOf(body, setCount); ok {
			count = int(number)
		}
		return nil
	})
	return count, err
}

// errUnreadable means that an element does not have its set's types: another process created a set of the same name.
var errUnreadable = errors.New("cannot be read")

func parseElement(b []byte, family model.Family, set ruleset.Set) (element ruleset.Element, err error) {
	element.Key, err = parseTuple(dataValue(b, unix.NFTA_SET_ELEM_KEY), family, set.Key)
	if err != nil {
		return element, fmt.Errorf("key %w: %w", errUnreadable, err)
	}
	switch {
	case !set.IsMap():
		return element, nil
	case set.MapsVerdicts():
		verdict := attribute(attribute(b, unix.NFTA_SET_ELEM_DATA), unix.NFTA_DATA_VERDICT)
		element.Verdict, err = parseVerdict(verdict)
	default:
		element.Value, err = parseTuple(dataValue(b, unix.NFTA_SET_ELEM_DATA), family, set.Value)
	}
	if err != nil {
		return element, fmt.Errorf("value of %s %w: %w", element.Key.Text(set.Key), errUnreadable, err)
	}
	return element, nil
}

// dataValue returns the bytes of an element's key or data.
func dataValue(element []byte, kind uint16) []byte {
	return attribute(attribute(element, kind), unix.NFTA_DATA_VALUE)
}
