package kit

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"
)

// Record keeps the result of each variant in a folder, one line of JSON each, so that an interrupted run can continue. Several processes may write to
// one folder, each to its own file.
type Record struct {
	// Commit is the commit that the agent was built from. Only variants that passed at Commit, or at one of Also, are skipped.
	Commit string
	Also   []string

	known map[string]entry // by variant and mode
	file  *os.File
}

// entry is one line of a record.
type entry struct {
	Variant       string        `json:"variant"`
	Mode          string        `json:"mode"`
	Commit        string        `json:"commit"`
	NotApplicable string        `json:"notApplicable,omitempty"`
	Error         string        `json:"error,omitempty"`
	Took          time.Duration `json:"took"`
	At            time.Time     `json:"at"`
}

// OpenRecord reads the entries in dir and creates a new file there to write to. Of several lines for a variant, the newest counts.
func OpenRecord(dir, commit string, also ...string) (*Record, error) {
	r := &Record{Commit: commit, Also: also, known: map[string]entry{}}
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return nil, err
	}
	names, err := filepath.Glob(filepath.Join(dir, "*.jsonl"))
	if err != nil {
		return nil, err
	}
	for _, name := range names {
		if err := r.read(name); err != nil {
			return nil, err
		}
	}
	r.file, err = os.CreateTemp(dir, time.Now().UTC().Format("20060102-150405-")+"*.jsonl")
	return r, err
}

// Close closes the file, and removes it if nothing was written to it.
func (r *Record) Close() error {
	info, err := r.file.Stat()
	if err == nil && info.Size() == 0 {
		err = os.Remove(r.file.Name())
	}
	return errors.Join(err, r.file.Close())
}

func (r *Record) read(name string) error {
	f, err := os.Open(name)
	if err != nil {
		return err
	}
	defer f.Close()
	lines := bufio.NewScanner(f)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		var e entry
		if json.Unmarshal(lines.Bytes(), &e) != nil {
			continue // the machine stopped in the middle of the line
		}
		key := e.Variant + " " + e.Mode
		if old, ok := r.known[key]; !ok || e.At.After(old.At) {
			r.known[key] = e
		}
	}
	return lines.Err()
}

// add writes a result immediately, because the machine may stop at any time.
func (r *Record) add(res Result) error {
	e := entry{res.Variant.Name(), res.Mode, r.Commit, res.NotApplicable, "", res.Took, time.Now()}
	if res.Err != nil {
		e.Error = res.Err.Error()
	}
	line, err := json.Marshal(e)
	if err == nil {
		_, err = r.file.Write(append(line, '\n'))
	}
	if err != nil {
		return fmt.Errorf("record %s: %w", e.Variant, err)
	}
	return nil
}

// Known returns the results in the record for the selected variants, including failures. todo names those for which the record has no success.
// Results from any other commit are ignored.
func (r *Record) Known(cfg Config) (results []Result, todo []string) {
	for _, j := range cfg.jobs() {
		e, ok := r.known[j.variant.Name()+" "+j.mode]
		ok = ok && (e.Commit == r.Commit || slices.Contains(r.Also, e.Commit))
		if ok {
			res := Result{Variant: j.variant, Mode: j.mode, NotApplicable: e.NotApplicable, Took: e.Took, Commit: e.Commit}
			if e.Error != "" {
				res.Err = errors.New(e.Error)
			}
			results = append(results, res)
		}
		if !ok || e.Error != "" {
			todo = append(todo, j.variant.Name())
		}
	}
	return results, todo
}
