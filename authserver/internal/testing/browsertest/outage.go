package browsertest

// CutPostgres disconnects every client from the database until the returned function is called.
func (s *Server) CutPostgres() (restore func()) {
	s.t.Helper()
	return s.Fixture.Database.Cut(s.t)
}
