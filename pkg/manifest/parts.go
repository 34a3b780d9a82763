package manifest

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"slices"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"
)

// maxListDepth bounds nested Lists. Each level is parsed once more, so deep nesting could take unbounded time.
const maxListDepth = 8

// Type is the type of an object.
type Type struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
}

var listType = Type{APIVersion: "v1", Kind: "List"}

// Part is an object in a file, or a part of the file without a valid object.
type Part struct {
	// Line is the first line of the document that contains the part, counted from 1.
	Line int
	// Path is the path of the part in the document, such as "items[3]"; empty if it is the whole document.
	Path string
	// Type is complete for an object. If Fault is set, it contains what could be parsed.
	Type Type
	// Namespace and Name are as written. Either may be empty.
	Namespace, Name string
	// JSON is the object.
	JSON []byte
	// Fault is why the part is invalid; nil for an object.
	Fault *ParseError

	duplicates []string // paths in the document
	items      []chunk  // items that were split off JSON; nil except for a list
	lines      *lines
	depth      int
	implied    Type // the default type of the items of the enclosing list
}

// ParseError is an error in a part.
type ParseError struct {
	// Line is the line of a syntax error in the file; zero for other errors.
	Line int
	// Field is the path of a field in the part; empty if no single field is the cause.
	Field  string
	Reason string
	// IsForeign is set for an unknown field that cannot be a misspelled known one. API clients ignore it.
	IsForeign bool
}

// Field returns the path in the document of a field of the part.
func (p *Part) Field(field string) string { return joinPath(p.Path, field) }

// Parts yields the objects of a file in order, and the parts that are invalid. types are the types that the caller
// reads. Lists of them are expanded, like v1 Lists. Objects of other types are not checked and have no Fault.
func Parts(format Format, text []byte, types ...Type) iter.Seq[Part] {
	return func(yield func(Part) bool) {
		text := bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
		if fault := binaryFormatError(text); fault != nil {
			yield(Part{Line: 1, Fault: fault})
			return
		}
		documents := yamlDocuments(text)
		if format == JSON {
			documents = jsonDocuments(text)
		}
		w := partWalker{types: types, yield: yield}
		for doc := range documents {
			if !w.walkDocument(doc) {
				return
			}
		}
	}
}

// partWalker yields the parts of documents. Its methods report whether the caller wants more.
type partWalker struct {
	types []Type
	yield func(Part) bool
}

func (w *partWalker) walkDocument(doc document) bool {
	part := Part{Line: doc.line, JSON: doc.json, Fault: doc.fault, duplicates: doc.duplicates, lines: doc.lines, items: doc.items}
	if doc.fault != nil {
		return w.yield(part)
	}
	return w.walkPart(part)
}

// objectHeader has the fields that are read from any object: its type, its name, and the items if it is a list.
//
// It has no embedded struct, because the decoder's errors would name its type.
type objectHeader struct {
	APIVersion string `json:"apiVersion"`
	Kind       string `json:"kind"`
	Metadata   struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
}

// listEnvelope has all fields of a list.
type listEnvelope struct {
	APIVersion string            `json:"apiVersion"`
	Kind       string            `json:"kind"`
	Metadata   metav1.ListMeta   `json:"metadata"`
	Items      []json.RawMessage `json:"items"`
}

// walkPart yields an object, or the items of a list.
func (w *partWalker) walkPart(p Part) bool {
	var header objectHeader
	if !bytes.HasPrefix(bytes.TrimSpace(p.JSON), []byte("{")) {
		return w.addError(p, "", "must be a Kubernetes object, with apiVersion, kind and metadata")
	}
	err := kjson.UnmarshalCaseSensitivePreserveInts(p.JSON, &header)
	p.Type = Type{APIVersion: header.APIVersion, Kind: header.Kind}
	p.Namespace, p.Name = header.Metadata.Namespace, header.Metadata.Name
	if p.Type == (Type{}) {
		p.Type = p.implied
	}
	if p.Type.Kind == "" || p.Type.APIVersion == "" {
		return w.addTypeError(p, err)
	}
	itemType, isList := w.itemType(p.Type)
	switch {
	case !isList && !slices.Contains(w.types, p.Type):
	case err != nil:
		field, reason := describeDecodeError(err)
		return w.addError(p, field, reason)
	case isList:
		return w.walkList(p, itemType, header.Items)
	}
	return w.yield(p)
}

// itemType reports whether a type is a list, and returns the default type of its items.
func (w *partWalker) itemType(list Type) (item Type, isList bool) {
	for _, t := range w.types {
		if list.APIVersion == t.APIVersion && list.Kind == t.Kind+"List" {
			return t, true
		}
	}
	return Type{}, list == listType
}

// addTypeError yields an error for an object without apiVersion or kind.
func (w *partWalker) addTypeError(p Part, err error) bool {
	missing, reason := "kind", "Required value"
	if p.Type.Kind != "" {
		missing = "apiVersion"
	}
	if err != nil {
		missing, reason = describeDecodeError(err)
	}
	return w.addError(p, missing, reason)
}

// walkList yields the errors in a list, and then its items.
func (w *partWalker) walkList(p Part, itemType Type, items []json.RawMessage) bool {
	p.Type = Type{}
	if p.depth == maxListDepth {
		return w.addError(p, "", fmt.Sprintf("lists are nested more than %d deep", maxListDepth))
	}
	for _, fault := range append(decodeAsClient(p.JSON, &listEnvelope{}), p.duplicateFields("items[")...) {
		invalid := p
		invalid.Fault = &fault
		if !w.yield(invalid) {
			return false
		}
	}
	itemPart := p
	itemPart.depth, itemPart.implied, itemPart.items = p.depth+1, itemType, nil
	for i, item := range items {
		itemPart.JSON, itemPart.Path = item, p.Field(fmt.Sprintf("items[%d]", i))
		if !w.walkPart(itemPart) {
			return false
		}
	}
	for i, item := range p.items {
		var err error
		itemPart.Path = p.Field(fmt.Sprintf("items[%d]", i))
		if itemPart.JSON, itemPart.duplicates, err = item.toJSON(itemPart.Path); err != nil {
			invalid := Part{Line: p.Line, Path: itemPart.Path, Fault: item.syntaxError(err)}
			if !w.yield(invalid) {
				return false
			}
			continue
		}
		if !w.walkPart(itemPart) {
			return false
		}
	}
	return true
}

// addError yields an invalid part, whose contents are not read.
func (w *partWalker) addError(p Part, field, reason string) bool {
	p.Fault = &ParseError{Field: field, Reason: reason}
	return w.yield(p)
}
