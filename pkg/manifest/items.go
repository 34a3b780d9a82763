package manifest

import (
	"bytes"
	"encoding/json"
	"strings"
)

// splitItems splits a List in kubectl's format, with the line "items:" and each item unindented. It returns the list
// without its items as JSON, and the items. If ok is false, the document must be parsed as a whole.
//
// A parsed tree takes thirty times the size of its document: 69 MB with 25,000 objects took 2.2 GB as a whole. Split
// items also fail independently. An item may refer to an anchor in another one, so a text with a possible anchor is not
// split.
func splitItems(doc chunk) (list []byte, items []chunk, ok bool) {
	if bytes.Contains(doc.text, []byte(" &")) {
		return nil, nil, false
	}
	var head []byte
	inItems, hasItemsKey, start := false, false, 0 // start of the last item
	for offset, line := 0, doc.line; offset < len(doc.text); line++ {
		end := len(doc.text)
		if i := bytes.IndexByte(doc.text[offset:], '\n'); i >= 0 {
			end = offset + i + 1
		}
		text := doc.text[offset:end]
		switch {
		case bytes.Equal(bytes.TrimRight(text, " \t\n"), []byte("items:")):
			if hasItemsKey {
				return nil, nil, false
			}
			inItems, hasItemsKey = true, true
		case inItems && bytes.HasPrefix(text, []byte("- ")):
			start = offset
			items = append(items, chunk{line, doc.text[start:end]})
		case inItems && strings.IndexByte(" \t\n#", text[0]) >= 0:
			if len(items) == 0 {
				return nil, nil, false
			}
			items[len(items)-1].text = doc.text[start:end]
		default:
			inItems = false
			head = append(head, text...)
		}
		offset = end
	}
	if len(items) == 0 {
		return nil, nil, false
	}
	return convertListHead(head, items)
}

// convertListHead converts a list without its items to JSON, and reports whether it is a list.
func convertListHead(head []byte, items []chunk) (list []byte, _ []chunk, ok bool) {
	list, duplicates, err := yamlToJSON(head)
	if err != nil || len(duplicates) > 0 {
		return nil, nil, false
	}
	var header objectHeader
	if json.Unmarshal(list, &header) != nil || !strings.HasSuffix(header.Kind, "List") || header.Items != nil {
		return nil, nil, false
	}
	return list, items, true
}

// toJSON converts an item to JSON. Its duplicates are paths in the document.
func (c chunk) toJSON(path string) (converted []byte, duplicates []string, err error) {
	text := append([]byte(" "), c.text[1:]...) // without its dash
	if len(content(text)) == 0 {
		return []byte("null"), nil, nil
	}
	converted, found, err := yamlToJSON(text)
	for _, duplicate := range found {
		duplicates = append(duplicates, joinPath(path, duplicate))
	}
	return converted, duplicates, err
}
