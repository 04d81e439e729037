package file

import (
	"bytes"
	"encoding/json"
	"io"
)

// document is one YAML or JSON document of a file.
type document struct {
	text []byte
	line int // of its first line, counted from 1
	json bool

	digest uint64 // of text; see readAll
}

// split divides a file into its documents. It omits documents that hold only blanks
// and comments.
func split(data []byte) []document {
	data = bytes.TrimPrefix(data, []byte("\xef\xbb\xbf")) // the byte order mark that Windows editors write
	if first := bytes.TrimLeft(data, " \t\r\n"); len(first) > 0 && first[0] == '{' {
		if docs, ok := splitJSON(data); ok {
			return docs
		}
	}
	var docs []document
	start, line, startLine := 0, 1, 1
	flush := func(end int) {
		if text := data[start:end]; !blank(text) {
			docs = append(docs, document{text: text, line: startLine})
		}
	}
	for at := 0; at < len(data); line++ {
		next := len(data)
		if i := bytes.IndexByte(data[at:], '\n'); i >= 0 {
			next = at + i + 1
		}
		if isSeparator(data[at:next]) && at > 0 {
			flush(at)
			start, startLine = at, line
		}
		at = next
	}
	flush(len(data))
	return docs
}

// isSeparator reports whether a line starts a document. The document may continue
// behind the three dashes.
func isSeparator(line []byte) bool {
	return bytes.HasPrefix(line, []byte("---")) &&
		(len(line) == 3 || bytes.IndexByte([]byte(" \t\r\n"), line[3]) >= 0)
}

// blank reports whether a document has no content.
func blank(text []byte) bool {
	for line := range bytes.Lines(text) {
		line = bytes.TrimSpace(line)
		if bytes.HasPrefix(line, []byte("---")) {
			line = bytes.TrimSpace(line[3:])
		}
		if len(line) > 0 && line[0] != '#' && line[0] != '%' && !bytes.Equal(line, []byte("...")) {
			return false
		}
	}
	return true
}

// splitJSON splits a sequence of JSON documents. ok is false if the file is not
// such a sequence, because YAML may begin with a brace, too.
func splitJSON(data []byte) (docs []document, ok bool) {
	decoder := json.NewDecoder(bytes.NewReader(data))
	line, counted := 1, 0
	for {
		var raw json.RawMessage
		err := decoder.Decode(&raw)
		if err == io.EOF {
			return docs, true
		}
		if err != nil {
			return nil, false
		}
		start := int(decoder.InputOffset()) - len(raw)
		line += bytes.Count(data[counted:start], []byte("\n"))
		counted = start
		docs = append(docs, document{text: raw, line: line, json: true})
	}
}
