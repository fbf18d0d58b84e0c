package s3store

// Shrink makes parts smaller, and fewer, than any service has them.
func (s *Store) Shrink(size, most int64) { s.partSize, s.maxParts = size, most }

// Buffers are the buffers of parts in use beyond the first of each upload.
func (s *Store) Buffers() int64 { return s.extra.Load() }
