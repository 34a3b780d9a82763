package source

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"path"
	"strings"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	kjson "sigs.k8s.io/json"

	"github.com/vicinity-proxy/vicinity/pkg/model"
)

// maxListDepth bounds Lists in Lists. Each level is read once more, so that a file of brackets could take forever.
const maxListDepth = 8

// isManifestName reports whether a file is one of manifests, by its name.
func isManifestName(name string) bool {
	switch path.Ext(name) {
	case ".yaml", ".yml", ".json":
		return true
	}
	return false
}

// decode reads the objects of a file. Whatever is wrong becomes a Problem of the smallest part that it concerns.
func decode(file string, text []byte) manifest {
	d := decoder{file: file, out: manifest{isComplete: true}}
	text = bytes.TrimPrefix(text, []byte("\xef\xbb\xbf"))
	if bytes.HasPrefix(text, []byte("\xff\xfe")) || bytes.HasPrefix(text, []byte("\xfe\xff")) {
		d.unreadable("", "", "the file is UTF-16; save it as UTF-8")
		return d.out
	}
	var documents iter.Seq[document]
	if path.Ext(file) == ".json" {
		documents = jsonDocuments(text)
	} else {
		documents = yamlDocuments(text)
	}
	for doc := range documents {
		if doc.err != nil {
			d.unreadable("", "", doc.err.Error())
			continue
		}
		d.line = doc.line
		d.read(part{json: doc.json, duplicates: doc.duplicates})
	}
	return d.out
}

// decoder collects what one file holds.
type decoder struct {
	file string
	line int // of the document
	out  manifest
}

// part is an object or a list somewhere in a document.
type part struct {
	json       []byte
	duplicates []string // paths in the document
	path       string   // in the document: "items[3]"; empty for the whole of it
	depth      int
	implied    metav1.TypeMeta // what the list around it says its items are
}

// envelope is what must be read of anything to know what it is.
type envelope struct {
	metav1.TypeMeta `json:",inline"`
	Metadata        struct {
		Name      string `json:"name"`
		Namespace string `json:"namespace"`
	} `json:"metadata"`
	Items []json.RawMessage `json:"items"`
}

// listEnvelope is all that a list may hold.
type listEnvelope struct {
	metav1.TypeMeta `json:",inline"`
	metav1.ListMeta `json:"metadata"`
	Items           []json.RawMessage `json:"items"`
}

// itemTypes are what the items of each kind of list are, where they do not say it themselves.
var itemTypes = map[metav1.TypeMeta]metav1.TypeMeta{
	{APIVersion: "v1", Kind: "List"}:                               {},
	{APIVersion: "v1", Kind: "ServiceList"}:                        serviceType,
	{APIVersion: "v1", Kind: "NodeList"}:                           nodeType,
	{APIVersion: "discovery.k8s.io/v1", Kind: "EndpointSliceList"}: endpointSliceType,
	{APIVersion: "networking.k8s.io/v1", Kind: "ServiceCIDRList"}:  serviceCIDRType,
}

var (
	serviceType       = metav1.TypeMeta{APIVersion: "v1", Kind: ServiceKind}
	nodeType          = metav1.TypeMeta{APIVersion: "v1", Kind: NodeKind}
	endpointSliceType = metav1.TypeMeta{APIVersion: "discovery.k8s.io/v1", Kind: EndpointSliceKind}
	serviceCIDRType   = metav1.TypeMeta{APIVersion: "networking.k8s.io/v1", Kind: ServiceCIDRKind}
)

// isRead reports whether the proxy reads objects of a type.
func isRead(typ metav1.TypeMeta) bool {
	return typ == serviceType || typ == nodeType || typ == endpointSliceType || typ == serviceCIDRType
}

// read reads an object or a list. Kinds that are none of our business are passed over in silence.
func (d *decoder) read(p part) {
	var e envelope
	if !bytes.HasPrefix(bytes.TrimSpace(p.json), []byte("{")) {
		d.unreadable("", p.path, "must be a Kubernetes object, with apiVersion, kind and metadata")
		return
	}
	err := kjson.UnmarshalCaseSensitivePreserveInts(p.json, &e)
	typ := e.TypeMeta
	if typ == (metav1.TypeMeta{}) {
		typ = p.implied
	}
	if typ.Kind == "" || typ.APIVersion == "" {
		d.untyped(p, typ, err)
		return
	}
	itemType, isList := itemTypes[typ]
	switch {
	case isList && err == nil:
		d.readList(p, itemType, e.Items)
	case !isList && !isRead(typ):
	case err != nil:
		fieldPath, reason := describe(err)
		d.unreadable(typ.Kind, join(p.path, fieldPath), reason)
	case e.Metadata.Name == "":
		d.unreadable(typ.Kind, join(p.path, "metadata.name"), "Required value")
	default:
		key := objectKey{kind: typ.Kind, name: model.ObjectName{Namespace: e.Metadata.Namespace, Name: e.Metadata.Name}}
		d.readObject(p, key)
	}
}

// untyped refuses something that does not say what it is.
func (d *decoder) untyped(p part, typ metav1.TypeMeta, err error) {
	missing := "kind"
	if typ.Kind != "" {
		missing = "apiVersion"
	}
	reason := "Required value"
	if err != nil {
		missing, reason = describe(err)
	}
	d.unreadable(typ.Kind, join(p.path, missing), reason)
}

func (d *decoder) readList(p part, itemType metav1.TypeMeta, items []json.RawMessage) {
	if p.depth == maxListDepth {
		d.unreadable("", p.path, fmt.Sprintf("lists are nested more than %d deep", maxListDepth))
		return
	}
	var list listEnvelope
	strict, err := kjson.UnmarshalStrict(p.json, &list)
	if err != nil {
		strict = append(strict, err)
	}
	for _, err := range strict {
		fieldPath, reason := describe(err)
		d.unreadable("", join(p.path, fieldPath), reason)
	}
	inItems := join(p.path, "items[")
	for _, duplicate := range p.duplicates {
		if rest, ok := within(duplicate, p.path); ok && !strings.HasPrefix(duplicate, inItems) {
			d.unreadable("", join(p.path, rest), "duplicate field")
		}
	}
	for i, item := range items {
		d.read(part{
			json:       item,
			duplicates: p.duplicates,
			path:       fmt.Sprintf("%s%d]", inItems, i),
			depth:      p.depth + 1,
			implied:    itemType,
		})
	}
}

// unreadable records that something in the file could not be told: from now on, an object's absence from the file proves
// nothing.
func (d *decoder) unreadable(kind, fieldPath, reason string) {
	object := ""
	if kind != "" {
		object = fmt.Sprintf("%s in the document at line %d", kind, d.line)
	} else if fieldPath != "" || !strings.HasPrefix(reason, "line ") {
		reason = fmt.Sprintf("%s (document at line %d)", reason, max(d.line, 1))
	}
	d.out.problems = append(d.out.problems, newProblem(d.file, object, fieldPath, reason))
	d.out.isComplete = false
}
