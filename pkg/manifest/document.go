package manifest

import (
	"bytes"
	"encoding/json"
	"errors"
	"io"
	"iter"

	yamlv2 "go.yaml.in/yaml/v2"
	"sigs.k8s.io/yaml"
)

// document is one document of a file as JSON, or the reason why it is invalid.
type document struct {
	line int    // its first line in the file
	json []byte // nil if there is a fault
	// duplicates are the paths of fields that the document sets twice. The strict decoder finds them in JSON text; the
	// conversion from YAML drops them.
	duplicates []string
	// items are a list's items if they were split off the JSON; nil otherwise.
	items []chunk
	fault *ParseError
	lines *lines
}

// yamlDocuments yields the non-empty documents of a YAML file.
func yamlDocuments(text []byte) iter.Seq[document] {
	return func(yield func(document) bool) {
		for c := range splitYAML(unifyLineBreaks(text)) {
			if len(content(c.text)) == 0 {
				continue
			}
			doc := document{line: c.line, lines: &lines{first: c.line, text: c.text}}
			var err error
			isSplit := false
			if doc.json, doc.items, isSplit = splitItems(c); !isSplit {
				doc.json, doc.duplicates, err = yamlToJSON(c.text)
			}
			if err != nil {
				doc.fault = c.syntaxError(err)
			}
			if bytes.Equal(doc.json, []byte("null")) {
				continue
			}
			if !yield(doc) {
				return
			}
		}
	}
}

// yamlToJSON converts one YAML document. A JSON document is valid YAML and is returned unchanged.
func yamlToJSON(text []byte) (converted []byte, duplicates []string, err error) {
	if root := content(text); root[0] == '{' && json.Valid(root) {
		return root, nil, nil
	}
	converted, err = yaml.YAMLToJSONStrict(text)
	if _, ok := errors.AsType[*yamlv2.TypeError](err); ok {
		if duplicates, err = duplicateKeys(text); err != nil {
			return nil, nil, err
		}
		converted, err = yaml.YAMLToJSON(text)
	}
	if err != nil {
		return nil, nil, err
	}
	if err := checkSingleDocument(text); err != nil {
		return nil, nil, err
	}
	return converted, duplicates, nil
}

// checkSingleDocument returns an error for text after a document's end, which the YAML library ignores. A document that
// starts with a plain key can end before its text does only at a line break that only YAML 1.1 recognizes.
func checkSingleDocument(text []byte) error {
	isPlain := !bytes.ContainsAny(content(text)[:1], "{[!&*\"'|>?@`")
	for _, lineBreak := range []string{"\u0085", "\u2028", "\u2029"} {
		isPlain = isPlain && !bytes.Contains(text, []byte(lineBreak))
	}
	if isPlain {
		return nil
	}
	decoder := yamlv2.NewDecoder(bytes.NewReader(text))
	var ignored any
	if err := decoder.Decode(&ignored); err != nil {
		return err
	}
	if err := decoder.Decode(&ignored); !errors.Is(err, io.EOF) {
		return errors.New("yaml: text after the end of the document")
	}
	return nil
}

// jsonDocuments yields the documents of a JSON file: usually one, or several in sequence.
func jsonDocuments(text []byte) iter.Seq[document] {
	return func(yield func(document) bool) {
		decoder := json.NewDecoder(bytes.NewReader(text))
		for line, countedTo := 1, 0; ; {
			rest := text[decoder.InputOffset():]
			start := len(text) - len(bytes.TrimLeft(rest, " \t\r\n"))
			line, countedTo = line+bytes.Count(text[countedTo:start], []byte("\n")), start
			var raw json.RawMessage
			err := decoder.Decode(&raw)
			if errors.Is(err, io.EOF) {
				return
			}
			if err != nil {
				yield(document{line: line, fault: jsonError(text, err)})
				return
			}
			doc := document{line: line, json: raw, lines: &lines{first: line, text: raw}}
			if !bytes.Equal(raw, []byte("null")) && !yield(doc) {
				return
			}
		}
	}
}

// jsonError returns a syntax error of the JSON decoder with its line.
func jsonError(text []byte, err error) *ParseError {
	offset := int64(len(text))
	if syntax, ok := errors.AsType[*json.SyntaxError](err); ok {
		offset = syntax.Offset
	}
	return &ParseError{Line: lineAt(text, offset), Reason: err.Error()}
}

// lineAt returns the number of the line at an offset, counted from 1.
func lineAt(text []byte, offset int64) int {
	return 1 + bytes.Count(text[:min(offset, int64(len(text)))], []byte("\n"))
}
