/* In place of the unwinder, where nothing unwinds: a panic aborts, and a backtrace, whose symbols the
 * standard library is built without, is empty. */

/* _URC_END_OF_STACK (Itanium C++ ABI, Exception Handling, 1.1). */
int _Unwind_Backtrace(void *trace, void *argument)
{
	(void)trace;
	(void)argument;
	return 5;
}

unsigned long _Unwind_GetIP(void *context)
{
	(void)context;
	return 0;
}

#ifdef __arm__
/* ARM has registers fetched by this (Exception Handling ABI for the Arm Architecture, 8.5); 1 says that
 * it cannot be done. */
int _Unwind_VRS_Get(void *context, int class, unsigned number, int representation, void *value)
{
	(void)context, (void)class, (void)number, (void)representation, (void)value;
	return 1;
}

/* What its tables refer to, though nobody reads them. */
void __aeabi_unwind_cpp_pr0(void)
{
}

void __aeabi_unwind_cpp_pr1(void)
{
}
#endif
