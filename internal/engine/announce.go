package engine

// announce reports what is about to be written. Between a write and the OnTurn that
// tells of it packets go by it already, and whoever looks at what they left in the
// kernel must not be surprised.
func (e *Engine) announce() {
	if e.p.BeforeWrite != nil && len(e.turn.Decided) > 0 {
		e.p.BeforeWrite(e.turn.Decided)
	}
}
