//go:build linux

package nft

import (
	"errors"
	"fmt"

	"github.com/google/nftables/userdata"
	"golang.org/x/sys/unix"

	"github.com/vicinity-proxy/vicinity/pkg/model"
	"github.com/vicinity-proxy/vicinity/pkg/proxy/ruleset"
)

// maxElementsMessage is the size from which no more elements are added to a message. All elements of a message are one
// attribute, whose length has 16 bits; the largest element, with two chain names of 255 bytes, still fits.
const maxElementsMessage = 64000

// The kernel's NF_DROP and NF_ACCEPT.
const (
	verdictDrop   = 0
	verdictAccept = 1
)

// elementWriter appends elements of one set, in as many messages as they need.
type elementWriter struct {
	*encoder
	kind, flags  uint16
	family       model.Family
	set          *ruleset.Set
	hasValues    bool // whether elements carry their value; a deletion is by key
	mapsVerdicts bool
	isOpen       bool
	list         int
}

func (e *encoder) elementsOp(op ruleset.Op, object ruleset.ElementsObject) error {
	for _, types := range [][]ruleset.Type{object.Set.Key, object.Set.Value} {
		if err := checkTypes(types); err != nil {
			return err
		}
	}
	w := elementWriter{encoder: e, family: op.Family, set: &object.Set, mapsVerdicts: object.Set.MapsVerdicts()}
	switch op.Verb {
	case ruleset.Add:
		w.kind, w.flags, w.hasValues = unix.NFT_MSG_NEWSETELEM, unix.NLM_F_CREATE, object.Set.IsMap()
	case ruleset.Delete:
		w.kind = unix.NFT_MSG_DELSETELEM
	case ruleset.Flush:
		return errNoSuchOperation
	}
	for element := range object.Elements {
		if err := w.add(&element); err != nil {
			return fmt.Errorf("element %s: %w", element.Key.Text(object.Set.Key), err)
		}
	}
	w.close()
	return nil
}

func (w *elementWriter) add(element *ruleset.Element) error {
	if w.isOpen && (w.singly || w.size() > maxElementsMessage) {
		w.close()
	}
	if !w.isOpen {
		w.begin()
	}
	start := w.nest(unix.NFTA_LIST_ELEM)
	if err := w.tuple(unix.NFTA_SET_ELEM_KEY, w.set.Key, &element.Key); err != nil {
		return err
	}
	if w.hasValues {
		if err := w.value(element); err != nil {
			return err
		}
	}
	if w.kind == unix.NFT_MSG_NEWSETELEM && element.Comment != "" {
		w.comment(element.Comment)
	}
	w.endNest(start)
	w.elements++
	return nil
}

func (w *elementWriter) begin() {
	w.beginNFT(w.kind, w.flags, nfproto(w.family))
	w.text(unix.NFTA_SET_ELEM_LIST_TABLE, w.targetTable())
	w.text(unix.NFTA_SET_ELEM_LIST_SET, w.set.Name)
	w.list = w.nest(unix.NFTA_SET_ELEM_LIST_ELEMENTS)
	w.isOpen = true
}

func (w *elementWriter) close() {
	if w.isOpen {
		w.endNest(w.list)
		w.end()
		w.isOpen = false
	}
}

func (w *elementWriter) value(element *ruleset.Element) error {
	if !w.mapsVerdicts {
		return w.tuple(unix.NFTA_SET_ELEM_DATA, w.set.Value, &element.Value)
	}
	data := w.nest(unix.NFTA_SET_ELEM_DATA)
	defer w.endNest(data)
	return w.verdict(element.Verdict)
}

// comment writes the comment that nft lists after the key of an element.
func (w *elementWriter) comment(text string) {
	length := byte(len(text) + 1)
	w.attributeHeader(unix.NFTA_SET_ELEM_USERDATA, 2+int(length))
	w.b = append(w.b, byte(userdata.NFTNL_UDATA_SET_ELEM_COMMENT), length)
	w.b = append(append(w.b, text...), 0)
	w.align4()
}

func (w *elementWriter) tuple(kind uint16, types []ruleset.Type, tuple *ruleset.Tuple) (err error) {
	outer := w.nest(kind)
	inner := len(w.b)
	w.attributeHeader(unix.NFTA_DATA_VALUE, 0)
	if w.b, err = appendTuple(w.b, w.family, types, tuple); err != nil {
		return err
	}
	w.endNest(inner) // writes the length of any attribute
	w.align4()
	w.endNest(outer)
	return nil
}

var errNoVerdict = errors.New("no verdict")

func (m *messages) verdict(verdict ruleset.Verdict) error {
	code, ok := verdictCode(verdict.Kind)
	if !ok {
		return errNoVerdict
	}
	start := m.nest(unix.NFTA_DATA_VERDICT)
	m.number(unix.NFTA_VERDICT_CODE, uint32(code))
	if verdict.Chain != "" {
		m.text(unix.NFTA_VERDICT_CHAIN, verdict.Chain)
	}
	m.endNest(start)
	return nil
}

func verdictCode(kind ruleset.VerdictKind) (code int32, ok bool) {
	switch kind {
	case ruleset.Drop:
		return verdictDrop, true
	case ruleset.Jump:
		return unix.NFT_JUMP, true
	case ruleset.Goto:
		return unix.NFT_GOTO, true
	case ruleset.Return:
		return unix.NFT_RETURN, true
	case ruleset.NoVerdict:
	}
	return 0, false
}

// parseVerdict reads what verdict wrote.
func parseVerdict(b []byte) (ruleset.Verdict, error) {
	code, _ := numberOf(b, unix.NFTA_VERDICT_CODE)
	for _, kind := range []ruleset.VerdictKind{ruleset.Drop, ruleset.Jump, ruleset.Goto, ruleset.Return} {
		if known, _ := verdictCode(kind); known == int32(code) {
			return ruleset.Verdict{Kind: kind, Chain: textOf(b, unix.NFTA_VERDICT_CHAIN)}, nil
		}
	}
	return ruleset.Verdict{}, fmt.Errorf("unknown verdict %d", int32(code))
}
