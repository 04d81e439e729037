package cli

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"time"

	"github.com/spf13/cobra"
	"sigs.k8s.io/yaml"

	"github.com/fairlead/fairlead/internal/control"
	"github.com/fairlead/fairlead/internal/inspect"
)

// Exit codes other than 0, which means that all is well.
const (
	Unwell  = 1
	Usage   = 2
	NoAgent = 3
)

// Error is the error and exit code of a command.
type Error struct {
	Code int
	Err  error
}

func (e *Error) Error() string { return e.Err.Error() }
func (e *Error) Unwrap() error { return e.Err }

// ExitCode returns the exit code for the error of a command of this package, and whether
// it is such an error.
func ExitCode(err error) (int, bool) {
	var e *Error
	if errors.As(err, &e) {
		return e.Code, true
	}
	return 0, false
}

// Commands returns all commands of this package.
func Commands() []*cobra.Command {
	return []*cobra.Command{statusCommand(), explainCommand(), traceCommand(), auditCommand(), migrateCommand()}
}

const codes = `Exit code 0: well. 1: not well. 2: wrong usage. 3: no agent runs here.`

// question is one request to the agent. It specifies how the answer is printed.
type question struct {
	path   string
	query  url.Values
	format string
	limit  time.Duration
}

// formats adds the flag -o.
func formats(cmd *cobra.Command, q *question) {
	cmd.SilenceUsage, cmd.SilenceErrors = true, true
	cmd.Flags().StringVarP(&q.format, "output", "o", "text", "text, json or yaml")
	q.query, q.limit = url.Values{}, 10*time.Second
}

// put sends the request, reads the answer into v, and prints it.
func (q *question) put(ctx context.Context, w io.Writer, v inspect.Texter) error {
	if err := knownFormat(q.format); err != nil {
		return err
	}
	ctx, cancel := context.WithTimeout(ctx, q.limit)
	defer cancel()
	body, err := control.Get(ctx, q.path+"?"+q.query.Encode())
	if err != nil {
		return failed(err)
	}
	read := json.Unmarshal
	if q.format == "text" {
		read = readVisible
	}
	if err := read(body, v); err != nil {
		return &Error{Unwell, fmt.Errorf("read the agent's answer: %w", err)}
	}
	return Print(w, q.format, v)
}

func knownFormat(format string) error {
	if format != "text" && format != "json" && format != "yaml" {
		return &Error{Usage, fmt.Errorf("--output is %q, and must be text, json or yaml", format)}
	}
	return nil
}

// Print writes an answer as text, json or yaml.
func Print(w io.Writer, format string, v inspect.Texter) error {
	if err := knownFormat(format); err != nil {
		return err
	}
	var out []byte
	var err error
	switch format {
	case "text":
		v.Text(w)
		return nil
	case "json":
		out, err = json.MarshalIndent(v, "", "  ")
		out = append(out, '\n')
	case "yaml":
		out, err = yaml.Marshal(v)
	}
	if err == nil {
		_, err = w.Write(out)
	}
	return err
}

func failed(err error) error {
	var squatted *control.SquattedError
	var answer *control.AnswerError
	if errors.As(err, &answer) { // the text may quote an object's name
		answer = &control.AnswerError{Status: answer.Status, Text: inspect.Visible(answer.Text)}
		err = answer
	}
	switch {
	case errors.Is(err, control.ErrNoAgent), errors.Is(err, control.ErrHeld), errors.As(err, &squatted):
		return &Error{NoAgent, err}
	case answer != nil && (answer.Status == http.StatusBadRequest || answer.Status == http.StatusForbidden):
		return &Error{Usage, err}
	}
	return &Error{Unwell, err}
}

func unwell(text string) error {
	return &Error{Unwell, errors.New("not well: " + inspect.Visible(text))}
}

func usage(format string, args ...any) error { return &Error{Usage, fmt.Errorf(format, args...)} }
